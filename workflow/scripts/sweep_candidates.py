"""Count the rounds of every prompt at some block sizes: replayed, or decoded live."""

import pandas as pd

from blockpilot.jobs import fingerprint_job, start_job
from blockpilot.pair import load_pair
from blockpilot.parts import count_buckets, write_in_parts
from blockpilot.records import PROMPTS, SWEEP, TRAJECTORIES, read_table
from blockpilot.replay import Replay
from blockpilot.sweep import (
    REQUEST_COLUMNS,
    Decoder,
    DecodeVariant,
    join_requests,
    sweep_live,
    sweep_replay,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params, limits = snakemake.params, snakemake.params.limits
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
target, draft, stop_ids = load_pair(**params.loading)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])


def compute(bucket):
    """Return the rows of one bucket, a list per block size."""
    trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS, bucket)
    requests = join_requests(trajectories, prompts)
    if params.method == "live":
        decode = Decoder(target, draft, variant, stop_ids)
        return sweep_live(decode, requests, params.block_sizes)
    replay = Replay(target, draft, variant.sampling, limits["memory_mb"])
    sizes, tokens = params.block_sizes, limits["token_budget"]
    return sweep_replay(replay, requests, sizes, variant.max_new_tokens, tokens)


write_in_parts(
    snakemake.output.sweeps,
    SWEEP,
    compute,
    sizes=count_buckets(prompts["prompt_id"]),
    fingerprint=fingerprint_job(params, snakemake.input),
    description=f"{params.method} b = {', '.join(map(str, params.block_sizes))}",
)
