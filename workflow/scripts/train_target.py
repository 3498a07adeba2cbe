"""Train the pocket target and save it in the Hugging Face layout."""

from pathlib import Path

import pandas as pd
import torch
from transformers import PreTrainedTokenizerFast

from blockpilot.jobs import start_job
from blockpilot.provenance import write_json
from blockpilot.training.loop import LoopSettings
from blockpilot.training.target import encode_conversation, train_target

start_job(snakemake.log[0])
torch.set_num_threads(snakemake.threads)
settings = snakemake.params.target
tokenizer = PreTrainedTokenizerFast.from_pretrained(snakemake.input.tokenizer)
corpus = pd.read_parquet(snakemake.input.corpus)


def encode(split):
    """Return the tokenized conversations of one split."""
    rows = corpus[corpus["split"] == split]
    pairs = zip(rows["turns"], rows["domain"], strict=True)
    return [
        encode_conversation(tokenizer, list(zip(t[::2], t[1::2], strict=True)), d) for t, d in pairs
    ]


train = encode("train")
print("training tokens", sum(len(e.ids) for e in train), flush=True)
model, state = train_target(
    train,
    encode("validation"),
    settings["model"],
    LoopSettings(**settings["loop"]),
    settings["batch_tokens"],
    settings["prompt_weight"],
    settings["seed"],
    Path(snakemake.params.checkpoint),
)
output = Path(snakemake.output.model)
model.generation_config.eos_token_id = tokenizer.eos_token_id
model.config.eos_token_id = tokenizer.eos_token_id
model.config.pad_token_id = tokenizer.pad_token_id
model.to(torch.bfloat16).save_pretrained(output)
tokenizer.save_pretrained(output)
write_json(output / "training.json", {"history": state.history, "elapsed_s": state.elapsed_s})
