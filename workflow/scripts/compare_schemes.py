"""Count rounds under match, coupled and rejection, and under other temperatures of the draft."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.records import PROMPTS, SCHEMES, TRAJECTORIES, read_table, write_table
from blockpilot.schemes import SchemeComparison
from blockpilot.sweep import REQUEST_COLUMNS, DecodeVariant, first_per_domain, join_requests

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params = snakemake.params
variant = DecodeVariant.from_config(params.variant, params.max_new_tokens)
compare = SchemeComparison(load_pair(**params.loading), variant, **params.limits)
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
trajectories = read_table(snakemake.input.trajectories, TRAJECTORIES, REQUEST_COLUMNS)
requests = join_requests(trajectories, prompts)
validation = requests[requests["split"] == "validation"]
test = first_per_domain(requests[requests["split"] == "test"], params.prompts_per_domain)

sizes = list(range(2, 2 * params.trained_block_size + 1))
both = pd.concat([validation, test])
rows = [*compare.replayed(both, sizes, "match"), *compare.replayed(both, sizes, "coupled")]
own = variant.sampling.draft_temperature or variant.sampling.temperature
for warmth in set(params.draft_temperatures) - {own}:
    at = [params.trained_block_size]
    rows += compare.replayed(validation, at, "coupled", draft_temperature=warmth)
rows += compare.decoded(test, sizes)
write_table(snakemake.output.schemes, rows, SCHEMES)
