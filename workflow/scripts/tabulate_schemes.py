"""Tabulate match, coupled and rejection side by side, and the draft's own temperature."""

import pandas as pd

from blockpilot.comparisons import draft_temperature_table, schemes_table
from blockpilot.jobs import start_job
from blockpilot.records import PROMPTS, SCHEMES, read_table
from blockpilot.tables import write_csv

start_job(snakemake.log[0])
params = snakemake.params
statistics = {
    "out_of_domain": params.out_of_domain,
    "resamples": params.resamples,
    "seed": params.seed,
}
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
schemes, temperatures = [], []
for variant, path in zip(params.variants, snakemake.input.schemes, strict=True):
    rows = read_table(path, SCHEMES)
    live = rows.loc[rows["scheme"] == "rejection", "draft_temperature"]
    warmth = {"coupled": params.draft_temperatures[variant], "rejection": float(live.iloc[0])}
    for split in ("validation", "test"):
        table = schemes_table(rows, prompts, warmth, splits=(split,), **statistics)
        table.insert(0, "split", split)
        table.insert(0, "decode", variant)
        schemes.append(table)
    table = draft_temperature_table(rows, prompts, params.trained_block_size, **statistics)
    table.insert(0, "decode", variant)
    temperatures.append(table)
write_csv(pd.concat(schemes), snakemake.output.schemes)
write_csv(pd.concat(temperatures), snakemake.output.draft_temperatures)
