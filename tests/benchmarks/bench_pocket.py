"""Measures decoding of the embedded pair: ours, transformers' `generate`, and the package `dflash`.

All systems answer the same prompts, interleaved prompt by prompt in an order that is shuffled
anew for every prompt, so that they share the machine's good and bad moments. Ratios are paired
per prompt. Time runs from the prompt's ids to the answer's ids, prefill included.

    make bench        or        python tests/benchmarks/bench_pocket.py --prompts 6
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
from common import (
    DFLASH,
    NOISE_SEED,
    RADIUS,
    ROOT,
    describe,
    dflash_decoder,
    draw_prompts,
    load_embedded_pair,
    make_row,
    positive,
    render_table,
    stamp,
)

from blockpilot.candidates import candidate_set
from blockpilot.decode import generate
from blockpilot.errors import BlockPilotError
from blockpilot.pair import Pair
from blockpilot.policies import ArPolicy, FixedPolicy, Policy
from blockpilot.sampling import Sampling
from blockpilot.tables import write_csv
from blockpilot.timing import now_s

OUTPUT = ROOT / "results/bench/decode.csv"
AR, REFERENCE = "ar", "transformers generate"
IMPORT_REPEATS = 3
IMPORT = (
    "import time; start = time.perf_counter(); from blockpilot import generate, load_draft, "
    "load_target; print(time.perf_counter() - start)"
)

System = Callable[[list[int]], list[int]]  # prompt ids to output ids


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it."""
    options = parse(arguments)
    pair = load_embedded_pair(options.threads)
    prompts = draw_prompts(options.prompts + calibration_count(options.prompts))
    measured, others = prompts[: options.prompts], prompts[options.prompts :]
    describe(options.prompts, options.max_new_tokens, options.threads, pair)
    rows = []
    for temperature in (0.0, 1.0):
        rows += measure_temperature(pair, temperature, options.max_new_tokens, measured, others)
    rows += [import_row(), memory_row()]
    table = stamp(rows, options.threads)
    write_csv(table, options.output)
    print(render_table(table, AR))
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


def calibration_count(prompts: int) -> int:
    """Return how many further prompts the best fixed block size is chosen on."""
    return max(3, prompts)


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
                sampling=Sampling(temperature=temperature),
                seed=NOISE_SEED,
            ).output_ids
        )

    trained = pair.draft.config.block_size
    fixed = {b: ours(FixedPolicy(b)) for b in candidate_set(trained, RADIUS)}
    best = choose_size(interleave({str(b): system for b, system in fixed.items()}, others))
    systems = {AR: ours(ArPolicy()), f"best fixed, b={best}": fixed[best]}
    systems[f"trained size, b={trained}"] = fixed[trained]
    sizes = [] if temperature else sorted({1, 2, trained // 2, trained, best, 2 * trained})
    if sizes:
        systems[REFERENCE] = reference(pair, max_new_tokens)
        package = dflash_decoder(pair, max_new_tokens)
        for b in sizes:
            systems[f"b={b}"] = ours(ArPolicy() if b == 1 else FixedPolicy(b))
            systems[f"{DFLASH}, b={b}"] = lambda ids, b=b: package(ids, b)[0]
    runs = interleave(systems, prompts)
    setting = f"T={temperature:g}"
    rows = [speed_row(runs, name, setting) for name in systems]
    rows += [package_row(runs, b, setting) for b in sizes]
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


def package_row(runs: pd.DataFrame, b: int, setting: str) -> dict:
    """Return how many times as many tokens per second as the public package ours decodes."""
    by_prompt = runs.set_index(["system", "prompt"])["tokens_per_s"]
    ratios = by_prompt[f"b={b}"] / by_prompt[f"{DFLASH}, b={b}"]
    return make_row(f"ours / {DFLASH}", f"{setting}, b={b}, ratio", ratios, ratios)


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


if __name__ == "__main__":
    try:
        main()
    except BlockPilotError as error:
        sys.exit(f"error: {error}")
