"""Train the selector on the training split of the pairs."""

from pathlib import Path

import pandas as pd
import torch

from blockpilot.jobs import start_job
from blockpilot.labels import best_fixed_block_size
from blockpilot.provenance import write_text
from blockpilot.records import HISTORY, PAIRS, PREDICTIONS, read_table, write_table
from blockpilot.selector import SelectorConfig
from blockpilot.training.selector import SelectorTraining, model_card, predict, train_selector

start_job(snakemake.log[0])
torch.set_num_threads(snakemake.params.threads)
settings = snakemake.params.selector
pairs = read_table(snakemake.input.pairs, PAIRS)
vector = "prefill_hidden" if settings["features"] == "hidden" else "prefill_logits"
config = SelectorConfig(
    **{key: settings[key] for key in ("features", "width", "depth", "dropout")},
    input_size=len(pairs[vector].iloc[0]),
    block_sizes=tuple(int(b) for b in pairs["candidates"].iloc[0]),
    fallback_block_size=best_fixed_block_size(pairs),
)
training = SelectorTraining(
    **{key: settings[key] for key in ("epochs", "learning_rate", "batch_size", "seed")}
)
selector, history = train_selector(pairs, config, training)

folder = Path(snakemake.output.selector)
selector.save(folder)
write_text(folder / "README.md", model_card(config, training, history))
write_table(folder / "history.parquet", pd.DataFrame(history), HISTORY)
write_table(folder / "predictions.parquet", predict(selector, pairs), PREDICTIONS)
