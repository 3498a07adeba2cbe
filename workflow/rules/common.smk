# Configuration shared by all rules. Every job reads this again: no torch here.
from pathlib import Path

from snakemake.exceptions import WorkflowError

from blockpilot.candidates import candidate_set
from blockpilot.checkpoints import (
    check_answer_length,
    check_pair,
    read_draft_config,
    read_target_config,
)
from blockpilot.config import compose_config, swept_block_sizes
from blockpilot.errors import BlockPilotError
from blockpilot.provenance import digest_files


def local_files(folder):
    """Return the files of a checkpoint folder; none for a name on the Hub."""
    return sorted(str(path) for path in Path(folder).glob("*") if path.suffix != ".md")


try:
    CONFIG = compose_config(
        "conf", config.get("experiment", "pocket"), list(config.get("overrides", []))
    )
    PAIR, DECODE, SWEEP = CONFIG["pair"], CONFIG["decode"], CONFIG["sweep"]
    DRAFT = read_draft_config(PAIR["draft"])
    if PAIR["target_revision"] is None:
        TARGET = read_target_config(PAIR["target"])
        check_pair(DRAFT, TARGET, PAIR["draft"])
        check_answer_length("decode.max_new_tokens", DECODE["max_new_tokens"], TARGET)
    CANDIDATES = candidate_set(DRAFT.block_size, SWEEP["radius"])
except BlockPilotError as error:
    raise WorkflowError(str(error)) from None

SWEPT = swept_block_sizes(CANDIDATES, DRAFT.block_size, SWEEP["extra_block_sizes"])
PER_JOB = SWEEP["candidates_per_job"]
SWEEP_JOBS = [SWEPT[at : at + PER_JOB] for at in range(0, len(SWEPT), PER_JOB)]
TRAIN = CONFIG["train"]
DATASETS = CONFIG["prompts"]["datasets"]
VARIANTS = DECODE["variants"]
# What replay gives besides labels is made where labels are replayed.
REPLAYED = list(VARIANTS) if SWEEP["method"] == "replay" else []
# At temperature 0 all schemes are the same.
COMPARED = [
    name
    for name in SWEEP["schemes"]["variants"]
    if name in REPLAYED and VARIANTS[name]["temperature"] > 0
]
DEVICE = CONFIG["device"]
THREADS = DEVICE["threads"]
GPUS = 1 if DEVICE["torch"].startswith("cuda") else 0
RUN = f"results/{CONFIG['run']}"
PROMPTS = expand(f"{RUN}/prompts/{{dataset}}.parquet", dataset=DATASETS)
PAIR_FILES = local_files(PAIR["target"]) + local_files(PAIR["draft"])
# Seen from a rule file; only `--software-deployment-method conda` builds it. Not the environment's
# name: with a name, snakemake calls conda in every run.
ENVIRONMENT = "../../environment.yml"
# What decoding depends on; variants and lengths are added by the rules that use them.
LOADING = {"pair": PAIR, "dtype": DECODE["dtype"], "device": DEVICE}
# The target alone: another draft changes neither prompts nor trajectories.
TARGET_LOADING = {
    **LOADING,
    "pair": {key: value for key, value in PAIR.items() if key != "draft"},
}
# Snakemake does not see edits of imported modules: measured times depend on these.
REPLAY_LIMITS = {key: SWEEP[key] for key in ("memory_mb", "token_budget")}
MEASURED_WITH = digest_files(
    [
        f"workflow/src/blockpilot/{module}.py"
        for module in ("decode", "draft", "evaluate", "policies", "sampling", "target")
    ]
)


def replay_results():
    """Return the tables and figures that replay gives, for `all` and the manifest."""
    found = []
    if REPLAYED:
        found += [rules.tabulate_replay.output, rules.plot_replay.output]
    if COMPARED:
        found += [rules.tabulate_schemes.output, rules.plot_schemes.output]
    return found


def variant_sampling(name):
    """Return what decides a variant's tokens and rounds."""
    keys = ("temperature", "sampling", "top_k", "top_p", "draft_temperature")
    return {key: VARIANTS[name][key] for key in sorted(keys) if key in VARIANTS[name]}


def target_sampling(name):
    """Return what decides a variant's text: not the scheme, nor anything of the draft."""
    keys = ("temperature", "top_k", "top_p")
    return {key: VARIANTS[name][key] for key in sorted(keys) if key in VARIANTS[name]}


def draft_temperature(name):
    """Return the temperature at which a variant's draft draws under `coupled`."""
    own = VARIANTS[name]
    return own.get("draft_temperature") or own["temperature"]


wildcard_constraints:
    dataset="[A-Za-z0-9_]+",
    decode="[A-Za-z0-9_]+",
