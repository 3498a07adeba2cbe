"""Measures decoding of the embedded pair: ours against transformers' own `generate`.

All systems answer the same prompts, interleaved prompt by prompt in an order that is shuffled
anew for every prompt, so that they share the machine's good and bad moments. Ratios are paired
per prompt. Time runs from the prompt's ids to the answer's ids, prefill included.

    make bench        or        python tests/benchmarks/bench_pocket.py --prompts 6
"""

from __future__ import annotations

import argparse
import datetime
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from blockpilot.candidates import candidate_set
from blockpilot.decode import generate
from blockpilot.errors import BlockPilotError
from blockpilot.pair import Pair, load_pair
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.policies import ArPolicy, FixedPolicy, Policy
from blockpilot.prompts import load_tokenizer, render
from blockpilot.provenance import machine_facts, package_versions
from blockpilot.tables import write_csv
from blockpilot.timing import now_s

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = ROOT / "workflow/resources/pocket"
OUTPUT = ROOT / "results/bench/decode.csv"
AR, REFERENCE = "ar", "transformers generate"
PROMPT_SEED = 7  # of the workflow's test generators
NOISE_SEED = 0
RADIUS = 2
IMPORT_REPEATS = 3
IMPORT = (
    "import time; start = time.perf_counter(); from blockpilot import generate, load_draft, "
    "load_target; print(time.perf_counter() - start)"
)

System = Callable[[list[int]], list[int]]  # prompt ids to output ids


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it."""
    options = parse(arguments)
    pair = load_pair(
        {
            "target": str(RESOURCES / "target"),
            "target_revision": None,
            "draft": str(RESOURCES / "draft"),
            "attn_implementation": "sdpa",
        },
        dtype="float32",
        device={"torch": "cpu", "threads": options.threads},
    )
    prompts = draw_prompts(options.prompts + calibration_count(options.prompts))
    measured, others = prompts[: options.prompts], prompts[options.prompts :]
    describe(options, pair)
    rows = []
    for temperature in (0.0, 1.0):
        rows += measure_temperature(pair, temperature, options.max_new_tokens, measured, others)
    rows += [import_row(), memory_row()]
    machine = f"{machine_facts()['processor']}, {options.threads} thread(s)"
    table = pd.DataFrame(rows).assign(machine=machine, date=datetime.date.today().isoformat())
    write_csv(table.drop(columns="ratios"), options.output)
    print(render_table(table))
    print(f"\nwritten to {options.output}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--prompts", type=positive, default=12, help="measured prompts (%(default)s)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, default=128, help="most tokens per answer (%(default)s)"
    )
    parser.add_argument("--threads", type=positive, default=1, help="torch threads (%(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="CSV file (%(default)s)")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """Return an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}; allowed: an integer >= 1")
    return value


def calibration_count(prompts: int) -> int:
    """Return how many further prompts the best fixed block size is chosen on."""
    return max(3, prompts // 2)


def draw_prompts(count: int) -> list[list[int]]:
    """Return first turns of the test generators, the domains taking turns."""
    tokenizer = load_tokenizer(RESOURCES / "target")
    prompts = []
    for index in range(count):
        domain = list(GENERATORS)[index % len(GENERATORS)]
        text, _ = draw_conversation(domain, PROMPT_SEED, index // len(GENERATORS))[0]
        prompts.append(render(tokenizer, [{"role": "user", "content": text}], {})[1])
    return prompts


def describe(options: argparse.Namespace, pair: Pair) -> None:
    """Print what is measured and where."""
    facts, versions = machine_facts(), package_versions()
    print(f"machine   {facts['processor']}, {facts['cores']} cores, {facts['system']}")
    print(f"versions  torch {versions['torch']}, transformers {versions['transformers']}")
    print(
        f"measuring {options.prompts} prompts x {options.max_new_tokens} tokens, float32, "
        f"{options.threads} torch thread(s), trained block size {pair.draft.config.block_size}"
    )


def measure_temperature(
    pair: Pair,
    temperature: float,
    max_new_tokens: int,
    prompts: list[list[int]],
    others: list[list[int]],
) -> list[dict]:
    """Return the rows of one temperature; the fixed size is chosen on `others`."""

    def ours(policy: Policy) -> System:
        return lambda ids: (
            generate(
                pair.target,
                pair.draft,
                ids,
                policy,
                max_new_tokens=max_new_tokens,
                stop_ids=pair.stop_ids,
                temperature=temperature,
                seed=NOISE_SEED,
            ).output_ids
        )

    trained = pair.draft.config.block_size
    fixed = {b: ours(FixedPolicy(b)) for b in candidate_set(trained, RADIUS)}
    best = choose_size(interleave({str(b): system for b, system in fixed.items()}, others))
    systems = {AR: ours(ArPolicy())}
    if temperature == 0:
        systems[REFERENCE] = reference(pair, max_new_tokens)
    systems[f"best fixed, b={best}"] = fixed[best]
    systems[f"trained size, b={trained}"] = fixed[trained]
    runs = interleave(systems, prompts)
    setting = f"T={temperature:g}"
    rows = [speed_row(runs, name, setting) for name in systems]
    return rows + [equality_row(runs, name, setting) for name in systems if name != AR]


def reference(pair: Pair, max_new_tokens: int) -> System:
    """Return transformers' greedy `generate` on the same model object."""
    stop_ids = sorted(pair.stop_ids)

    def run(ids: list[int]) -> list[int]:
        input_ids = torch.tensor([ids])
        output = pair.target.model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=stop_ids,
            pad_token_id=stop_ids[0] if stop_ids else 0,
        )
        return output[0, len(ids) :].tolist()

    return run


def interleave(systems: dict[str, System], prompts: list[list[int]]) -> pd.DataFrame:
    """Return one row per system and prompt: seconds, tokens, output_ids, tokens_per_s."""
    for system in systems.values():
        system(prompts[0])  # warm-up
    rng = random.Random(0)
    rows = []
    for index, ids in enumerate(prompts):
        for name in rng.sample(list(systems), len(systems)):
            clock_s = now_s(torch.device("cpu"))
            output = systems[name](ids)
            seconds = now_s(torch.device("cpu")) - clock_s
            rows.append((name, index, seconds, len(output), output))
    frame = pd.DataFrame(rows, columns=["system", "prompt", "seconds", "tokens", "output_ids"])
    return frame.assign(tokens_per_s=frame["tokens"] / frame["seconds"])


def choose_size(runs: pd.DataFrame) -> int:
    """Return the fixed size with the most tokens per second over all prompts together."""
    sums = runs.groupby("system")[["tokens", "seconds"]].sum()
    return int((sums["tokens"] / sums["seconds"]).idxmax())


def speed_row(runs: pd.DataFrame, name: str, setting: str) -> dict:
    """Return tokens per second (median, min, max over prompts) and its ratios to `ar`."""
    by_prompt = runs.set_index(["system", "prompt"])["tokens_per_s"]
    ratios = by_prompt[name] / by_prompt[AR]
    return make_row(name, f"{setting}, tokens/s", by_prompt[name], ratios)


def equality_row(runs: pd.DataFrame, name: str, setting: str) -> dict:
    """Return the share of prompts whose tokens equal those of `ar`."""
    outputs = runs.pivot(index="prompt", columns="system", values="output_ids")
    share = float((outputs[name] == outputs[AR]).mean())
    return make_row(name, f"{setting}, share of texts equal to {AR}", [share])


def import_row() -> dict:
    """Return the seconds that a fresh interpreter needs to import the library and torch."""
    command = [sys.executable, "-c", IMPORT]
    seconds = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(IMPORT_REPEATS)
    ]
    return make_row("blockpilot", "import, s", seconds)


def memory_row() -> dict:
    """Return the peak resident memory of this process, all systems together."""
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024  # Linux counts in KiB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return make_row("this process", "peak memory, MB", [peak])


def make_row(system: str, setting: str, values: Sequence, ratios: Sequence | None = None) -> dict:
    """Return a row of the table; `ratios` has the pairs' median and 10-90 % range."""
    row = {
        "system": system,
        "setting": setting,
        "median": float(np.median(values)),
        "low": float(np.min(values)),
        "high": float(np.max(values)),
        "ratio": None,
        "ratios": "",
    }
    if ratios is not None:
        low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
        row |= {"ratio": float(middle), "ratios": f"{middle:.2f} [{low:.2f}, {high:.2f}]"}
    return row


def render_table(table: pd.DataFrame) -> str:
    """Return the table for a terminal."""
    columns = {
        "system": table["system"],
        "setting": table["setting"],
        "median [min, max]": [
            f"{m:.4g} [{low:.4g}, {high:.4g}]"
            for m, low, high in zip(table["median"], table["low"], table["high"], strict=True)
        ],
        f"ratio to {AR} [10 %, 90 %]": table["ratios"],
    }
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "\n" + "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths.values(), strict=True))
        for line in lines
    )


if __name__ == "__main__":
    try:
        main()
    except BlockPilotError as error:
        sys.exit(f"error: {error}")
