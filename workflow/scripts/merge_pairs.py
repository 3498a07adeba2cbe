"""Merge the sweeps of all block sizes into pairs (p(x), B*)."""

import pandas as pd

from blockpilot.jobs import fingerprint_job, start_job
from blockpilot.labels import check_labelled, make_pairs
from blockpilot.parts import count_buckets, write_in_parts
from blockpilot.records import PAIRS, PROMPTS, SWEEP, TRAJECTORIES, read_table

start_job(snakemake.log[0])
inputs = snakemake.input
prompts = pd.concat([read_table(path, PROMPTS) for path in inputs.prompts])


def compute(bucket):
    """Return the pairs of one bucket."""
    sweeps = [read_table(path, SWEEP, bucket=bucket) for path in inputs.sweeps]
    trajectories = read_table(inputs.trajectories, TRAJECTORIES, bucket=bucket)
    return [make_pairs(trajectories, sweeps, prompts, snakemake.params.candidates)]


write_in_parts(
    [snakemake.output.pairs],
    PAIRS,
    compute,
    sizes=count_buckets(prompts["prompt_id"]),
    fingerprint=fingerprint_job(snakemake.params, inputs),
    description="pairs",
)
best = read_table(snakemake.output.pairs, PAIRS, ["best_block_size"])["best_block_size"]
check_labelled(len(best), len(prompts))
print(best.value_counts().sort_index().to_string())
