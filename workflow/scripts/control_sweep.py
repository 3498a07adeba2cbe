"""Label a sample of prompts live and by replay: what agrees, and what each costs."""

import pandas as pd

from blockpilot.control import Control
from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.records import CONTROL, COST, PROMPTS, TRAJECTORIES, read_table, write_table
from blockpilot.replay import Replay
from blockpilot.sweep import (
    REQUEST_COLUMNS,
    Decoder,
    DecodeVariant,
    first_per_domain,
    join_requests,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params, limits = snakemake.params, snakemake.params.limits
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
target, draft, stop_ids = load_pair(**params.loading)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS)
control = Control(
    Decoder(target, draft, variant, stop_ids),
    Replay(target, draft, variant.sampling, limits["memory_mb"]),
    params.block_sizes,
    params.batch_size,
    limits["token_budget"],
)
sample = first_per_domain(join_requests(trajectories, prompts), params.prompts_per_domain)
rows, costs = control.run(sample)
write_table(snakemake.output.control, rows, CONTROL)
write_table(snakemake.output.cost, costs, COST)
