"""Tabulate the findings, what drafting longer gives, the bounds, and the control of replay."""

import pandas as pd

from blockpilot.comparisons import draft_verify_table
from blockpilot.findings import finding_distribution, findings_table
from blockpilot.headroom import bounds_table
from blockpilot.jobs import start_job
from blockpilot.labels import best_fixed_block_size
from blockpilot.latency import LatencyModel
from blockpilot.records import (
    ACCEPTANCE,
    CONTROL,
    COST,
    GRID,
    LATENCY,
    PAIRS,
    PROMPTS,
    TRAJECTORIES,
    read_table,
)
from blockpilot.replay_control import agreement_table, cost_table, pair_table
from blockpilot.tables import write_csv

start_job(snakemake.log[0])
params, inputs, output = snakemake.params, snakemake.input, snakemake.output
trained, outside = params.trained_block_size, {"out_of_domain": params.out_of_domain}
statistics = {**outside, "resamples": params.resamples, "seed": params.seed}
prompts = pd.concat([read_table(path, PROMPTS) for path in inputs.prompts])
latency = LatencyModel.from_table(read_table(inputs.latency, LATENCY))
tables = {name: [] for name, _ in output.items()}


def bounds_of(index):
    """Return the bounds of one variant."""
    texts = ["prompt_id", "seed", "output_ids", "stop_reason"]
    labels = ["split", "block_sizes", "tau_by_block_size", "candidates"]
    return bounds_table(
        read_table(inputs.acceptances[index], ACCEPTANCE),
        read_table(inputs.trajectories[index], TRAJECTORIES, texts),
        prompts,
        block_sizes=params.block_sizes,
        best_fixed=best_fixed_block_size(read_table(inputs.pairs[index], PAIRS, labels)),
        max_new_tokens=params.max_new_tokens,
        latency=latency,
        **statistics,
    )


for index, variant in enumerate(params.variants):
    print(f"tabulating {variant}")
    grid = read_table(inputs.grids[index], GRID)
    control = read_table(inputs.controls[index], CONTROL)
    found = {
        "findings": findings_table(grid, prompts, trained, **statistics),
        "distribution": finding_distribution(grid, prompts, trained, **outside),
        "draft_verify": draft_verify_table(grid, prompts, trained, **statistics),
        "bounds": bounds_of(index),
        "agreement": agreement_table(control, prompts, **statistics),
        "pairs_control": pair_table(control, prompts, **outside),
        "cost": cost_table(read_table(inputs.costs[index], COST)),
    }
    for name, frame in found.items():
        frame.insert(0, "decode", variant)
        tables[name].append(frame)

for name, frames in tables.items():
    write_csv(pd.concat(frames), output[name])
