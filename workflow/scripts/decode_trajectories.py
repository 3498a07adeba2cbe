"""Decode every prompt and seed with the target alone, or take the text another engine wrote."""

import pandas as pd

from blockpilot.external import force_trajectories, read_responses
from blockpilot.jobs import fingerprint_job, start_job
from blockpilot.pair import load_pair
from blockpilot.parts import count_buckets, write_in_parts
from blockpilot.prompts import load_tokenizer
from blockpilot.records import PROMPTS, TRAJECTORIES, read_table
from blockpilot.sampling import Sampling
from blockpilot.trajectories import check_prompts, decode_trajectories

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params = snakemake.params
target, _, stop_ids = load_pair(**params.loading, with_draft=False)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
is_external = prompts["dataset"].isin(params.datasets)
check_prompts(prompts[~is_external], params.max_new_tokens, target.context_tokens)

pair = params.loading["pair"]
tokenizer = load_tokenizer(pair["target"], pair["target_revision"])
responses = {
    name: read_responses(settings, tokenizer, stop_ids, params.max_new_tokens, target.vocab_size)
    for name, settings in params.datasets.items()
}


def compute(bucket):
    """Return the trajectories of one bucket."""
    inside = prompts["prompt_id"].str.startswith(bucket)
    ours = decode_trajectories(
        target,
        prompts[inside & ~is_external],
        seeds=params.seeds,
        sampling=Sampling.from_variant(params.variant),
        max_new_tokens=params.max_new_tokens,
        stop_ids=stop_ids,
        batch_size=params.batch_size,
    )
    rows = list(ours)
    for name, own in responses.items():
        external = prompts[inside & (prompts["dataset"] == name)]
        rows += force_trajectories(target, external, own, memory_mb=params.memory_mb)
    return [rows]


write_in_parts(
    [snakemake.output.trajectories],
    TRAJECTORIES,
    compute,
    sizes=count_buckets(prompts["prompt_id"]),
    fingerprint=fingerprint_job(params, snakemake.input),
    description="trajectories",
)
