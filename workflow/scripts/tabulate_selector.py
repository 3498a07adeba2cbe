"""Tabulate how the selectors were trained, and every prediction with the tau it gives."""

from pathlib import Path

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.predictions import LABELLED, prediction_table, training_table
from blockpilot.records import HISTORY, PAIRS, PREDICTIONS, PROMPTS, read_table
from blockpilot.tables import write_csv

start_job(snakemake.log[0])
params, inputs = snakemake.params, snakemake.input
prompts = pd.concat([read_table(path, PROMPTS) for path in inputs.prompts])
training, predicted = [], []
for variant, path, folder in zip(params.variants, inputs.pairs, inputs.selectors, strict=True):
    pairs = read_table(path, PAIRS, columns=list(LABELLED))  # without the large features
    predictions = read_table(Path(folder) / "predictions.parquet", PREDICTIONS)
    curves = training_table(read_table(Path(folder) / "history.parquet", HISTORY), predictions)
    table = prediction_table(predictions, pairs, prompts, params.out_of_domain)
    for tables, frame in ((training, curves), (predicted, table)):
        frame.insert(0, "decode", variant)
        tables.append(frame)
write_csv(pd.concat(training), snakemake.output.training)
write_csv(pd.concat(predicted), snakemake.output.predictions)
