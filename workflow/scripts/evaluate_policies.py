"""Evaluate all policies on held-out prompts: rounds of all, times of a fixed subset."""

import pandas as pd

from blockpilot.evaluate import make_policies, offline_rows, time_policies
from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.policies import SelectorPolicy
from blockpilot.records import (
    EVALUATION,
    PAIRS,
    PROMPTS,
    SWEEP,
    TRAJECTORIES,
    read_table,
    write_table,
)
from blockpilot.selector import Selector
from blockpilot.sweep import Decoder, DecodeVariant, first_per_domain

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
loading = snakemake.params.loading
target, draft, stop_ids = load_pair(**loading)
decode = Decoder(
    target,
    draft,
    DecodeVariant.from_config(snakemake.params.variant, snakemake.params.max_new_tokens),
    stop_ids,
)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
pairs = read_table(snakemake.input.pairs, PAIRS)
sweep = pd.concat([read_table(path, SWEEP) for path in snakemake.input.sweeps])
selector = SelectorPolicy(Selector.load(snakemake.input.selector, loading["device"]["torch"]))

requests = (
    read_table(snakemake.input.trajectories, TRAJECTORIES)
    .merge(pairs[["prompt_id", "seed"]], on=["prompt_id", "seed"])  # those with a round
    .merge(prompts[["prompt_id", "split", "domain", "input_ids"]], on="prompt_id")
)
test = requests[requests["split"] == "test"]
rows = []
for seed in snakemake.params.seeds:
    policies = make_policies(pairs, prompts, seed, snakemake.params.swept, selector)
    own = test[test["seed"] == seed]
    timed = first_per_domain(own, snakemake.params.timed_prompts_per_domain)
    rows += time_policies(decode, policies, timed, snakemake.params.seed)
    rest = own[~own["prompt_id"].isin(timed["prompt_id"])]
    for policy in policies:
        rows += offline_rows(policy, rest, sweep, snakemake.params.max_new_tokens)
write_table(snakemake.output.evaluation, rows, EVALUATION)
