"""Replay every anchor of the test texts at every swept block size."""

import pandas as pd

from blockpilot.jobs import fingerprint_job, start_job
from blockpilot.pair import load_pair
from blockpilot.parts import count_buckets, write_in_parts
from blockpilot.records import ACCEPTANCE, PROMPTS, TRAJECTORIES, read_table
from blockpilot.replay import Replay
from blockpilot.sweep import (
    REQUEST_COLUMNS,
    DecodeVariant,
    first_per_domain,
    join_requests,
    replay_requests,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params, limits = snakemake.params, snakemake.params.limits
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
target, draft, _ = load_pair(**params.loading)
replay = Replay(target, draft, variant.sampling, limits["memory_mb"])
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
prompts = prompts[prompts["split"] == "test"]
if params.prompts_per_domain is not None:
    prompts = first_per_domain(prompts, params.prompts_per_domain)


def compute(bucket):
    """Return the acceptance tables of one bucket."""
    trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS, bucket)
    found = replay_requests(
        join_requests(trajectories, prompts),
        variant.max_new_tokens,
        limits["token_budget"],
        lambda texts: replay.full(texts, params.block_sizes),
    )
    return [[{"prompt_id": r.prompt_id, "seed": r.seed, **table.to_row()} for r, table in found]]


write_in_parts(
    [snakemake.output.acceptance],
    ACCEPTANCE,
    compute,
    sizes=count_buckets(prompts["prompt_id"]),
    fingerprint=fingerprint_job(params, snakemake.input),
    description="acceptance",
)
