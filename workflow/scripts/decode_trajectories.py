"""Decode every prompt and seed with the target alone, in batches of fixed make-up."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.records import PROMPTS, TRAJECTORIES, read_table, write_table
from blockpilot.trajectories import decode_trajectories

start_job(snakemake.log[0])
variant = snakemake.params.variant
target, _, stop_ids = load_pair(**snakemake.params.loading, with_draft=False)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
rows = decode_trajectories(
    target,
    prompts,
    seeds=variant["seeds"],
    temperature=variant["temperature"],
    max_new_tokens=snakemake.params.max_new_tokens,
    stop_ids=stop_ids,
    batch_size=snakemake.params.batch_size,
)
write_table(snakemake.output.trajectories, rows, TRAJECTORIES)
