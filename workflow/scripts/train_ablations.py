"""Train every setting of the ablations on one variant's pairs, each with several seeds."""

import pandas as pd
import torch

from blockpilot.jobs import start_job
from blockpilot.knobs import distinct_settings, read_settings
from blockpilot.records import ABLATIONS, PAIRS, read_table, write_table
from blockpilot.training.ablations import train_settings
from blockpilot.training.selector import SelectorTraining

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
params = snakemake.params
torch.set_num_threads(params.device["threads"])
keys = ("epochs", "learning_rate", "batch_size", "seed")
runs = train_settings(
    read_table(snakemake.input.pairs, PAIRS),
    distinct_settings(read_settings(params.settings)),
    SelectorTraining(**{key: params.selector[key] for key in keys}),
    params.training_seeds,
    params.trained_block_size,
    params.selector["dropout"],
    params.device["torch"],
)
frame = pd.concat(run[ABLATIONS.names] for run in runs)
write_table(snakemake.output.ablations, frame, ABLATIONS)
