"""Tabulate the ablations: rounds from the labels, time from the timed rows of the evaluation."""

import pandas as pd

from blockpilot.ablations import TABLE_COLUMNS, ablation_table, score_sizes
from blockpilot.jobs import start_job
from blockpilot.knobs import Setting, read_settings
from blockpilot.labels import best_fixed_block_size
from blockpilot.records import ABLATIONS, EVALUATION, OVERHEAD, PAIRS, PROMPTS, read_table
from blockpilot.reported import reported_rows
from blockpilot.tables import write_for_people

CAPTION = (
    "One knob at a time, every setting on the same held-out prompts; brackets are 95 % paired "
    "bootstrap intervals over prompts, with several training seeds averaged inside each prompt."
)

start_job(snakemake.log[0])
params, inputs = snakemake.params, snakemake.input
prompts = pd.concat([read_table(path, PROMPTS) for path in inputs.prompts])
overhead = read_table(inputs.overhead, OVERHEAD)
labels = ["prompt_id", "seed", "split", "block_sizes", "tau_by_block_size", "candidates"]
tables = []
paths = zip(inputs.pairs, inputs.evaluations, inputs.ablations, strict=True)
for variant, (pairs_path, evaluation_path, path) in zip(params.variants, paths, strict=True):
    print(f"tabulating {variant}")
    pairs = read_table(pairs_path, PAIRS, labels)
    evaluation = read_table(evaluation_path, EVALUATION)
    table = ablation_table(
        read_table(path, ABLATIONS),
        read_settings(params.settings),
        Setting(**params.default),
        score_sizes(pairs, evaluation, best_fixed_block_size(pairs)),
        overhead,
        prompts,
        out_of_domain=params.out_of_domain,
        resamples=params.resamples,
        seed=params.seed,
    )
    table.insert(0, "decode", variant)
    tables.append(table)
write_for_people(
    pd.concat(tables),
    *snakemake.output,
    columns=TABLE_COLUMNS,
    caption=CAPTION,
    reported=reported_rows(inputs.reported, "ablations"),
)
