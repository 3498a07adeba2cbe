"""Train the selector on the training split of the pairs."""

from pathlib import Path

import pandas as pd
import torch

from blockpilot.jobs import start_job
from blockpilot.provenance import write_text
from blockpilot.records import HISTORY, PAIRS, PREDICTIONS, read_table, write_table
from blockpilot.training.selector import (
    SelectorTraining,
    configure,
    model_card,
    predict,
    train_selector,
)

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
device = snakemake.params.device
torch.set_num_threads(device["threads"])
settings = snakemake.params.selector
pairs = read_table(snakemake.input.pairs, PAIRS)
config = configure(pairs, settings)
training = SelectorTraining(
    **{key: settings[key] for key in ("epochs", "learning_rate", "batch_size", "seed")}
)
selector, history = train_selector(pairs, config, training, device["torch"])

folder = Path(snakemake.output.selector)
selector.save(folder)
write_text(folder / "README.md", model_card(config, training, history))
write_table(folder / "history.parquet", pd.DataFrame(history), HISTORY)
write_table(folder / "predictions.parquet", predict(selector, pairs), PREDICTIONS)
