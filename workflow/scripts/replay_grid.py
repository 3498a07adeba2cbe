"""Replay every size from 1 to 2B, and smaller verified sizes behind drafts of B and 2B."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.records import GRID, PROMPTS, TRAJECTORIES, read_table, write_table
from blockpilot.replay import Replay
from blockpilot.sweep import (
    REQUEST_COLUMNS,
    DecodeVariant,
    first_per_domain,
    grid_choices,
    join_requests,
    sweep_grid,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params, limits = snakemake.params, snakemake.params.limits
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
target, draft, _ = load_pair(**params.loading)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
samples = [
    first_per_domain(prompts[prompts["split"] == split], params.prompts_per_domain)
    for split in ("train", "test")
]
trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS)
rows = sweep_grid(
    Replay(target, draft, variant.sampling, limits["memory_mb"]),
    join_requests(trajectories, pd.concat(samples)),
    grid_choices(params.trained_block_size),
    variant.max_new_tokens,
    limits["token_budget"],
)
write_table(snakemake.output.grid, rows, GRID)
