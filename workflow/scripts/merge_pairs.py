"""Merge the sweeps of all block sizes into pairs (p(x), B*)."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.labels import make_pairs
from blockpilot.records import PAIRS, PROMPTS, SWEEP, TRAJECTORIES, read_table, write_table

start_job(snakemake.log[0])
pairs = make_pairs(
    read_table(snakemake.input.trajectories, TRAJECTORIES),
    [read_table(path, SWEEP) for path in snakemake.input.sweeps],
    pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts]),
    snakemake.params.candidates,
)
write_table(snakemake.output.pairs, pairs, PAIRS)
print(pairs["best_block_size"].value_counts().sort_index().to_string())
