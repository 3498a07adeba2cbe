"""Draw the training corpus and train the tokenizer on it."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.pocket.corpus import draw_corpus
from blockpilot.pocket.tokenizer import train_tokenizer
from blockpilot.provenance import atomic_path

start_job(snakemake.log[0])
settings = snakemake.params.corpus
count = settings["conversations_per_domain"]
validation = settings["validation_per_domain"]

rows = [
    {"domain": domain, "turns": [text for turn in turns for text in turn]}
    for domain, turns in draw_corpus(settings["seed"], count + validation)
]
corpus = pd.DataFrame(rows)
index = corpus.groupby("domain").cumcount()
corpus["split"] = ["train" if i < count else "validation" for i in index]
with atomic_path(snakemake.output.corpus) as path:
    corpus.to_parquet(path, compression="zstd")

texts = (text for turns in corpus["turns"][:30_000] for text in turns)
train_tokenizer(texts, settings["tokenizer_vocab_size"], snakemake.output.tokenizer)
