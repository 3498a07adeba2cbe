"""Decode every prompt at one block size."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.records import PROMPTS, SWEEP, TRAJECTORIES, read_table, write_table
from blockpilot.sweep import Decoder, DecodeVariant, sweep_block_size

start_job(snakemake.log[0])
variant = DecodeVariant(
    temperature=snakemake.params.variant["temperature"],
    sampling=snakemake.params.variant["sampling"],
    max_new_tokens=snakemake.params.max_new_tokens,
)
target, draft, stop_ids = load_pair(**snakemake.params.loading)
rows = sweep_block_size(
    Decoder(target, draft, variant, stop_ids),
    pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts]),
    read_table(snakemake.input.trajectories, TRAJECTORIES, ["prompt_id", "seed", "output_ids"]),
    int(snakemake.wildcards.block_size),
)
write_table(snakemake.output.sweep, rows, SWEEP)
