"""Measure time and memory of every selector, of prefill, and of requests with and without draft."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.knobs import distinct_settings, read_settings
from blockpilot.overhead import Inputs, measure_requests, measure_selectors
from blockpilot.pair import load_pair
from blockpilot.policies import ArPolicy
from blockpilot.records import OVERHEAD, PROMPTS, TRAJECTORIES, read_table, write_table
from blockpilot.sweep import (
    REQUEST_COLUMNS,
    Decoder,
    DecodeVariant,
    first_per_domain,
    join_requests,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params = snakemake.params
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
target, draft, stop_ids = load_pair(**params.loading)
decode = Decoder(target, draft, variant, stop_ids)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS)
requests = join_requests(trajectories, prompts)
sample = first_per_domain(requests[requests["split"] == "test"], params.prompts_per_domain)
first = sample.iloc[0]
seen = decode(list(first.input_ids), int(first.seed), ArPolicy())
inputs = Inputs(
    prefill_logits=seen.prefill_logits,
    prefill_hidden=seen.prefill_hidden,
    trained_block_size=params.trained_block_size,
    repeats=params.repeats,
)
settings = distinct_settings(read_settings(params.settings))
rows = [*measure_selectors(settings, inputs)]
rows += measure_requests(decode, sample, params.trained_block_size)
write_table(snakemake.output.overhead, rows, OVERHEAD)
