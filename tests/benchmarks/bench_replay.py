"""Measures labels of the embedded pair: replayed from trajectories against decoded live.

A label is the rounds of one prompt at one block size. Three systems make all labels of the same
prompts for every size from 1 to 2B, and for the candidates around the trained size B:

    replay        trajectories decoded in batches, then every size replayed from them; both count
    live          one decode with our loop per prompt and size (size 1 without the draft)
    dflash 0.1.0  one generation of the public package per prompt and size, size 1 included

They take turns chunk by chunk of the prompts, in an order shuffled anew for every chunk, so that
they share the machine's good and bad moments; ratios are paired per chunk. Live decoding of a set
of sizes is the sum over its sizes; a replay is timed for each set, its trajectories once. `low` and
`high` are min and max over the chunks, the ratio's are its 10th and 90th percentile; the ratio of
a total is the ratio of the totals.

The curves replay sizes 1 to 2B against the length of four texts (decoded past their stop tokens,
cut to length) and against the number of texts (the measured prompts' own, repeated). Every point
has a fresh process and up to three replays. Memory is what the first of them adds to the resident
memory at its peak; trajectories are part of neither memory nor seconds. Past its stop token a text
is accepted less, so that more rows have to be drafted per token: seconds per row tell them apart.

    python tests/benchmarks/bench_replay.py --prompts 6 --skip-curves
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from common import (
    DFLASH,
    NOISE_SEED,
    RADIUS,
    ROOT,
    Label,
    decode_requests,
    describe,
    dflash_decoder,
    draw_prompts,
    load_embedded_pair,
    make_row,
    name_prompts,
    positive,
    render_table,
    stamp,
)
from replay_curves import MEMORY_MB, REPLAY, TOKEN_BUDGET, measure_curves
from replay_figure import draw_figure

from blockpilot.candidates import candidate_set
from blockpilot.decode import generate
from blockpilot.errors import BlockPilotError
from blockpilot.pair import Pair
from blockpilot.policies import ArPolicy, FixedPolicy
from blockpilot.progress import track
from blockpilot.replay import Replay
from blockpilot.sampling import GREEDY, Sampling
from blockpilot.sweep import sweep_replay
from blockpilot.tables import write_csv

OUTPUT = ROOT / "results/bench/replay.csv"
LIVE = "live"
TRAJECTORIES = "trajectories"
CHUNKS = 4

Labels = dict[tuple[str, int], Label]  # by prompt id and block size
# What a system did, step by step: the part (a size, or a name), its seconds, its labels.
Steps = Iterator[tuple[int | str, float, Labels]]
System = Callable[[Mapping[str, list[int]]], Steps]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the table and its figure, print it."""
    options = parse(arguments)
    pair = load_embedded_pair(options.threads)
    prompts = name_prompts(draw_prompts(options.prompts))
    describe(options.prompts, options.max_new_tokens, options.threads, pair)
    rows = []
    for temperature in (0.0, 1.0) if options.sampled else (0.0,):
        rows += measure_labels(pair, temperature, options, prompts)
    if not options.skip_curves:
        rows += measure_curves(pair, prompts, options.max_new_tokens, options.threads)
    table = stamp(rows, options.threads)
    write_csv(table, options.output)
    print(render_table(table, REPLAY))
    draw_figure(table, options.output)
    print(f"\nwritten to {options.output}, with .svg and .png beside it")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--prompts", type=positive, default=60, help="labelled prompts (%(default)s)")
    add("--max-new-tokens", type=positive, default=192, help="most per answer (%(default)s)")
    add("--threads", type=positive, default=1, help="torch threads (%(default)s)")
    add("--sampled", action="store_true", help="also T=1 with coupled noise, without dflash")
    add("--skip-curves", action="store_true", help="labels only; the curves need Linux's /proc")
    add("--skip-dflash", action="store_true", help="without the public package")
    add("--output", type=Path, default=OUTPUT, help="CSV file, figures beside it (%(default)s)")
    return parser.parse_args(arguments)


def measure_labels(
    pair: Pair, temperature: float, options: argparse.Namespace, prompts: dict[str, list[int]]
) -> list[dict]:
    """Return the rows of one temperature."""
    sampling = Sampling(temperature=temperature, scheme="coupled") if temperature else GREEDY
    trained, most = pair.draft.config.block_size, options.max_new_tokens
    widest = list(range(1, 2 * trained + 1))
    sets = {f"b={b[0]}..{b[-1]}": b for b in (widest, candidate_set(trained, RADIUS))}
    systems = {
        REPLAY: replay_sets(pair, sampling, most, sets),
        LIVE: decode_each(live_decoder(pair, sampling, most), widest),
    }
    if not (temperature or options.skip_dflash):
        systems[DFLASH] = decode_each(dflash_decoder(pair, most), widest)
    setting = f"T={temperature:g}"
    seconds, labels = take_turns(systems, prompts, len(widest), setting)
    rows = []
    for name, sizes in sets.items():
        rows += cost_rows(seconds, f"{setting}, {name}", name, sizes)
    for part in (TRAJECTORIES, *sets):
        place = f"{setting}, {part}" + ("" if part == TRAJECTORIES else " without trajectories")
        own = chunk_seconds(seconds, REPLAY, [part])
        rows.append(make_row(REPLAY, place, own["per_prompt"]) | {"unit": "s/prompt"})
    return rows + agreement_rows(labels, setting)


def replay_sets(
    pair: Pair, sampling: Sampling, max_new_tokens: int, sets: dict[str, list[int]]
) -> System:
    """Return a system that decodes trajectories and replays each set of sizes."""
    rng = random.Random(0)

    def run(prompts: Mapping[str, list[int]]) -> Steps:
        clock_s = time.perf_counter()
        requests = decode_requests(pair, prompts, max_new_tokens, pair.stop_ids, sampling)
        yield TRAJECTORIES, time.perf_counter() - clock_s, {}
        texts = dict(zip(requests["prompt_id"], requests["output_ids"], strict=True))
        for name in rng.sample(list(sets), len(sets)):
            clock_s = time.perf_counter()
            replay = Replay(pair.target, pair.draft, sampling, MEMORY_MB)
            found = sweep_replay(replay, requests, sets[name], max_new_tokens, TOKEN_BUDGET)
            spent_s = time.perf_counter() - clock_s
            rows = [row for own in found for row in own]
            labels = {
                (row["prompt_id"], row["block_size"]): (
                    texts[row["prompt_id"]],
                    row["num_committed"],
                )
                for row in rows
            }
            yield name, spent_s, labels

    return run


def decode_each(decode: Callable[[list[int], int], Label], sizes: Sequence[int]) -> System:
    """Return a system that decodes every prompt once per size."""

    def run(prompts: Mapping[str, list[int]]) -> Steps:
        for name, ids in prompts.items():
            for size in sizes:
                clock_s = time.perf_counter()
                label = decode(ids, size)
                yield size, time.perf_counter() - clock_s, {(name, size): label}

    return run


def live_decoder(
    pair: Pair, sampling: Sampling, max_new_tokens: int
) -> Callable[[list[int], int], Label]:
    """Return what decodes a prompt at a size with our loop."""

    def decode(ids: list[int], size: int) -> Label:
        found = generate(
            pair.target,
            pair.draft,
            ids,
            ArPolicy() if size == 1 else FixedPolicy(size),
            max_new_tokens=max_new_tokens,
            stop_ids=pair.stop_ids,
            sampling=sampling,
            seed=NOISE_SEED,
        )
        return found.output_ids, found.num_committed

    return decode


def take_turns(
    systems: dict[str, System], prompts: dict[str, list[int]], num_sizes: int, setting: str
) -> tuple[pd.DataFrame, dict[str, Labels]]:
    """Return seconds by system, chunk and part, and the labels of every system."""
    names = list(prompts)
    for system in systems.values():
        list(system({names[0]: prompts[names[0]]}))  # warm-up
    rng = random.Random(0)
    rows, labels = [], {name: {} for name in systems}
    total = len(prompts) * num_sizes * len(systems)
    with track(description=f"label, {setting}", total=total, unit="label") as bar:
        for index, chunk in enumerate(np.array_split(names, min(CHUNKS, len(names)))):
            own = {str(name): prompts[name] for name in chunk}
            for system in rng.sample(list(systems), len(systems)):
                for part, spent_s, found in systems[system](own):
                    rows.append((system, index, len(own), part, spent_s))
                    bar.update(len(found.keys() - labels[system].keys()))
                    labels[system] |= found
    return pd.DataFrame(rows, columns=["system", "chunk", "prompts", "part", "seconds"]), labels


def chunk_seconds(seconds: pd.DataFrame, system: str, parts: Sequence) -> pd.DataFrame:
    """Return total and per_prompt, a system's seconds for some parts together, by chunk."""
    own = seconds[(seconds["system"] == system) & seconds["part"].isin(parts)].groupby("chunk")
    total = own["seconds"].sum()
    return pd.DataFrame({"total": total, "per_prompt": total / own["prompts"].first()})


def cost_rows(seconds: pd.DataFrame, setting: str, name: str, sizes: list[int]) -> list[dict]:
    """Return seconds per prompt and in total of a set of sizes, and their ratios to replay."""
    base = chunk_seconds(seconds, REPLAY, [TRAJECTORIES, name])
    rows = []
    for system in seconds["system"].unique():
        own = base if system == REPLAY else chunk_seconds(seconds, system, sizes)
        ratios = own["total"] / base["total"]
        rows.append(make_row(system, setting, own["per_prompt"], ratios) | {"unit": "s/prompt"})
        total = make_row(system, f"{setting}, total", [own["total"].sum()]) | {"unit": "s"}
        rows.append(total | {"ratio": own["total"].sum() / base["total"].sum()})
    order = [REPLAY, LIVE, DFLASH]
    return sorted(rows, key=lambda row: (row["unit"] == "s", order.index(row["system"])))


def agreement_rows(labels: dict[str, Labels], setting: str) -> list[dict]:
    """Return the shares of labels whose texts, and whose rounds, equal those of replay."""
    rows = []
    base = labels[REPLAY]
    for system in [name for name in labels if name != REPLAY]:
        same = [key for key, (text, _) in labels[system].items() if text == base[key][0]]
        equal = sum(labels[system][key] == base[key] for key in same)
        for what, part, whole in (
            ("texts equal", len(same), len(base)),
            ("rounds equal where texts are", equal, len(same)),
        ):
            place = f"{setting}, {what}: {part} of {whole}"
            row = make_row(system, place, [part / whole if whole else np.nan])
            rows.append(row | {"unit": "share"})
    return rows


if __name__ == "__main__":
    try:
        main()
    except BlockPilotError as error:
        sys.exit(f"error: {error}")
