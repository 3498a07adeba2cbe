from blockpilot.config import compose_config

CONFIG = compose_config(
    "conf", config.get("experiment", "pocket"), list(config.get("overrides", []))
)
TRAIN = CONFIG["train"]
