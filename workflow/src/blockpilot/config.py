"""Composes the Hydra configuration and checks it before the first job starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from blockpilot.config_rules import RULES
from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.prompt_files import check_external


def compose_config(folder: str | Path, experiment: str, overrides: list[str]) -> dict[str, Any]:
    """Return the checked configuration as plain sorted containers.

    Args:
        folder: The `conf` folder.
        experiment: A file of `conf/experiment`.
        overrides: Hydra overrides, e.g. ["selector.width=512"].

    Raises:
        BlockPilotError: If a name is unknown or a value impossible.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    folder = Path(folder).resolve()
    check_choice("experiment", experiment, folder)
    for group, _, choice in (text.partition("=") for text in overrides):
        if (folder / group).is_dir():
            check_choice(group, choice, folder)
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(folder)):
            config = compose("config", overrides=[f"experiment={experiment}", *overrides])
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        keys = [text.partition("=")[0].lstrip("+~") for text in overrides]
        near = [match for key in keys for match in difflib.get_close_matches(key, RULES, n=1)]
        raise BlockPilotError(
            f"the configuration cannot be composed: {error}\nOverrides were {overrides}; a key "
            f"must exist in {folder}, e.g. {', '.join(near) or 'selector.width'}."
        ) from error
    for entries in (plain["decode"].get("variants"), plain["prompts"].get("datasets")):
        drop_nulls(entries or {})
    check_config(plain)
    return sort_keys(plain)


def drop_nulls(entries: dict) -> None:
    """Leave out variants or data sets that an experiment has set to null."""
    for name in [name for name, value in entries.items() if value is None]:
        del entries[name]


def check_choice(group: str, choice: str, folder: Path) -> None:
    """Raise BlockPilotError unless `conf/{group}/{choice}.yaml` exists."""
    known = sorted(path.stem for path in (folder / group).glob("*.yaml"))
    if choice not in known:
        remedy = f"Use one of them or add {folder / group}/{choice}.yaml."
        raise bad_input(group, choice, ", ".join(known), remedy)


def check_config(config: dict[str, Any]) -> None:
    """Check every value against `RULES`, then what the rules cannot say one by one.

    Raises:
        BlockPilotError: Naming the key, the value, what is allowed and the remedy.
    """
    for key, value in _leaves(config):
        rule = next((r for pattern, r in RULES.items() if _matches(key, pattern)), None)
        if rule is None:
            near = difflib.get_close_matches(key, RULES, n=3, cutoff=0.5)
            raise bad_input("configuration key", key, ", ".join(near) or "see conf/", "Remove it.")
        if not rule[1](value):
            raise bad_input(key, value, rule[0], f"Set it with 'overrides=[\"{key}=...\"]'.")
    _check_present(config)
    _check_device(config["device"]["torch"])
    if config["decode"]["dtype"] in ("float16", "fp16", "half"):
        raise bad_input(
            "decode.dtype",
            config["decode"]["dtype"],
            "float32, bfloat16, float64",
            "float16 overflows on the features of Qwen3 targets and acceptance falls to almost 0.",
        )
    _check_schemes(config)
    _check_out_of_domain(config["prompts"])
    for name, settings in config["prompts"].get("datasets", {}).items():
        if settings["source"] in ("file", "responses"):
            _check_file(f"prompts.datasets.{name}.path", settings.get("path", ""))


def _check_device(device: str) -> None:
    """Refuse a numbered device: every job leases one, and then sees no other."""
    kind, colon, number = device.partition(":")
    if kind == "cuda" and colon:
        remedy = f"Set device.torch=cuda, and CUDA_VISIBLE_DEVICES={number or 'N'} for the jobs."
        raise bad_input("device.torch", device, "cpu, cuda", remedy)


def _check_schemes(config: dict[str, Any]) -> None:
    """Check what the scheme of a variant allows: a replay, and text that another engine wrote."""
    datasets = config["prompts"].get("datasets", {})
    external = [name for name, own in datasets.items() if own["source"] == "responses"]
    for name, variant in config["decode"].get("variants", {}).items():
        scheme, temperature = variant.get("sampling", "match"), variant["temperature"]
        if scheme == "rejection" and temperature and config["sweep"]["method"] == "replay":
            raise bad_input(
                f"decode.variants.{name}.sampling",
                scheme,
                "match, coupled with sweep.method=replay",
                "The text of rejection depends on the block size: set sweep.method=live.",
            )
        for dataset in external:
            check_external(name, scheme, temperature, dataset)


def _check_out_of_domain(prompts: dict[str, Any]) -> None:
    names = sorted(prompts.get("datasets", {}))
    for name in prompts["out_of_domain"]:
        if name not in names:
            remedy = "Take it out of the list too, or correct the name."
            raise bad_input("prompts.out_of_domain", name, ", ".join(names), remedy)


def _check_present(config: dict[str, Any]) -> None:
    """An override may take a data set or a variant away, but no key that the rules rely on."""
    found = {key for key, _ in _leaves(config)}
    required = [key for key in RULES if "*" not in key]
    for name in config.get("decode", {}).get("variants", {}):
        required += [f"decode.variants.{name}.temperature", f"decode.variants.{name}.seeds"]
    for name in config.get("prompts", {}).get("datasets", {}):
        required.append(f"prompts.datasets.{name}.source")
    for key in required:
        if key not in found:
            rule = next(rule for pattern, rule in RULES.items() if _matches(key, pattern))
            raise bad_input(key, "missing", rule[0], "Give it a value.")


def _check_file(key: str, path: str) -> None:
    if not Path(path).is_file() or not Path(path).stat().st_size:
        raise bad_input(key, path, "an existing, non-empty file", "Correct the path or fill it.")


def _matches(key: str, pattern: str) -> bool:
    if pattern.endswith(".**"):
        return key.startswith(pattern[:-2])
    parts, wanted = key.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _leaves(value: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of everything that is not a mapping."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            yield from _leaves(item, f"{name}.")
        else:
            yield name, item


def sort_keys(value: Any) -> Any:
    """Return `value` with mapping keys sorted: Snakemake compares params by their repr."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def swept_block_sizes(
    candidates: list[int], trained_block_size: int, extra: list[int] | None
) -> list[int]:
    """Return all block sizes to sweep: the candidates and, by default, B-3, B+3, B/2 and 2B."""
    if extra is None:
        near = [trained_block_size - 3, trained_block_size + 3]
        far = [trained_block_size // 2, 2 * trained_block_size]
        extra = [max(1, size) for size in near + far]
    return sorted({*candidates, *extra})
