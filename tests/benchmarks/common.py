"""What the benchmarks share: the embedded pair, its prompts, rows and their table."""

from __future__ import annotations

import argparse
import datetime
import importlib
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from blockpilot.errors import bad_input
from blockpilot.pair import Pair, load_pair
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.prompts import load_tokenizer, render
from blockpilot.provenance import machine_facts, package_versions
from blockpilot.sampling import GREEDY, Sampling
from blockpilot.trajectories import decode_batch

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = ROOT / "workflow/resources/pocket"
PROMPT_SEED = 7  # of the workflow's test generators
NOISE_SEED = 0
BATCH = 16  # rows of a batch of trajectories, as in the workflow
RADIUS = 2  # of the candidates around the trained block size
DFLASH_VERSION = "0.1.0"
DFLASH = f"dflash {DFLASH_VERSION}"  # the public package

Label = tuple[list[int], list[int]]  # output ids, committed tokens per round


def positive(text: str) -> int:
    """Return an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}; allowed: an integer >= 1")
    return value


def load_embedded_pair(threads: int) -> Pair:
    """Load the embedded pair in float32 and set torch's threads."""
    return load_pair(
        {
            "target": str(RESOURCES / "target"),
            "target_revision": None,
            "draft": str(RESOURCES / "draft"),
            "attn_implementation": "sdpa",
        },
        dtype="float32",
        device={"torch": "cpu", "threads": threads},
    )


def draw_prompts(count: int) -> list[list[int]]:
    """Return first turns of the test generators, the domains taking turns."""
    tokenizer = load_tokenizer(RESOURCES / "target")
    prompts = []
    for index in range(count):
        domain = list(GENERATORS)[index % len(GENERATORS)]
        text, _ = draw_conversation(domain, PROMPT_SEED, index // len(GENERATORS))[0]
        prompts.append(render(tokenizer, [{"role": "user", "content": text}], {})[1])
    return prompts


def dflash_decoder(pair: Pair, max_new_tokens: int) -> Callable[[list[int], int], Label]:
    """Return what decodes a prompt at a size greedily with the public package, same target."""
    try:
        package, found = importlib.import_module("dflash.model"), version("dflash")
    except ImportError:
        package, found = None, "not installed"
    if found != DFLASH_VERSION:
        remedy = f"`pip install --no-deps dflash=={DFLASH_VERSION}`, or pass --skip-dflash."
        raise bad_input("package dflash", found, DFLASH_VERSION, remedy)
    package._cuda_time = time.perf_counter  # its statistics ask for a CUDA device
    # The package calls transformers by the older name of `cache`.
    warnings.filterwarnings("ignore", "`past_key_values` is deprecated", FutureWarning)
    folder, stop_ids = RESOURCES / "draft", sorted(pair.stop_ids)
    draft = package.DFlashDraftModel.from_pretrained(folder, dtype=torch.float32).eval()

    def decode(ids: list[int], size: int) -> Label:
        found = package.dflash_generate(
            draft,
            pair.target.model,
            torch.tensor([ids]),
            max_new_tokens=max_new_tokens,
            stop_token_ids=stop_ids,
            block_size=size,
            return_stats=True,
        )
        return found.output_ids[0, len(ids) :].tolist(), found.acceptance_lengths

    return decode


def name_prompts(prompts: Iterable[list[int]]) -> dict[str, list[int]]:
    """Return prompts by ids of one bucket: what is measured decides how many run together."""
    return {f"{index:016x}": prompt for index, prompt in enumerate(prompts)}


def decode_requests(
    pair: Pair,
    prompts: Mapping[str, list[int]],
    max_new_tokens: int,
    stop_ids: Collection[int],
    sampling: Sampling = GREEDY,
) -> pd.DataFrame:
    """Return the requests of prompts by id, as the sweeps take them, decoded batch by batch."""
    rows, names = [], list(prompts)
    for at in range(0, len(names), BATCH):
        own = names[at : at + BATCH]
        found = decode_batch(
            pair.target,
            [prompts[name] for name in own],
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            sampling=sampling,
            seed=NOISE_SEED,
        )
        rows += [
            (name, NOISE_SEED, prompts[name], text.output_ids, text.stop_reason, "ours")
            for name, text in zip(own, found, strict=True)
        ]
    columns = ["prompt_id", "seed", "input_ids", "output_ids", "stop_reason", "source"]
    return pd.DataFrame(rows, columns=columns)


def describe(prompts: int, max_new_tokens: int, threads: int, pair: Pair) -> None:
    """Print what is measured and where."""
    facts, versions = machine_facts(), package_versions()
    print(f"machine   {facts['processor']}, {facts['cores']} cores, {facts['system']}")
    print(f"versions  torch {versions['torch']}, transformers {versions['transformers']}")
    print(
        f"measuring {prompts} prompts x {max_new_tokens} tokens, float32, "
        f"{threads} torch thread(s), trained block size {pair.draft.config.block_size}"
    )


def make_row(system: str, setting: str, values: Sequence, ratios: Sequence | None = None) -> dict:
    """Return a row: median, min and max of values; median and 10-90 % range of paired ratios."""
    row = {
        "system": system,
        "setting": setting,
        "median": float(np.median(values)),
        "low": float(np.min(values)),
        "high": float(np.max(values)),
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
    }
    if ratios is not None:
        low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
        row |= {"ratio": float(middle), "ratio_low": float(low), "ratio_high": float(high)}
    return row


def stamp(rows: Sequence[dict], threads: int) -> pd.DataFrame:
    """Return the rows as a table that says on which machine and day they were measured."""
    machine = f"{machine_facts()['processor']}, {threads} thread(s)"
    return pd.DataFrame(rows).assign(machine=machine, date=datetime.date.today().isoformat())


def render_table(table: pd.DataFrame, reference: str) -> str:
    """Return the table for a terminal; ratios are to the system `reference`."""
    units = table["unit"] if "unit" in table else [""] * len(table)
    columns = {
        "system": table["system"],
        "setting": [
            f"{setting}, {unit}" if unit else setting
            for setting, unit in zip(table["setting"], units, strict=True)
        ],
        "median [min, max]": [
            f"{m:.4g} [{low:.4g}, {high:.4g}]"
            for m, low, high in zip(table["median"], table["low"], table["high"], strict=True)
        ],
        f"ratio to {reference} [10 %, 90 %]": [
            _render_ratio(*ends)
            for ends in zip(table["ratio"], table["ratio_low"], table["ratio_high"], strict=True)
        ],
    }
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "\n" + "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths.values(), strict=True))
        for line in lines
    )


def _render_ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    if pd.isna(ratio):
        return ""
    return f"{ratio:.2f}" if pd.isna(low) else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
