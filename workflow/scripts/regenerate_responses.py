"""Let the target answer training prompts, greedily and by sampling."""

import pandas as pd
import torch

from blockpilot.jobs import start_job
from blockpilot.prompts import hash_prompt, load_tokenizer, render
from blockpilot.records import RESPONSES, write_table
from blockpilot.sampling import Sampling
from blockpilot.target import load_target
from blockpilot.trajectories import decode_trajectories

start_job(snakemake.log[0])
torch.set_num_threads(snakemake.threads)
settings = snakemake.params.responses
target = load_target(snakemake.input.target)
tokenizer = load_tokenizer(snakemake.input.target)
corpus = pd.read_parquet(snakemake.input.corpus)


def prompts_of(split, count):
    """Return a row per turn of the first conversations; history is the corpus's own."""
    rows = {}
    for _, own in corpus[corpus["split"] == split].groupby("domain"):
        for row in own.head(count).itertuples():
            roles = [("user", "assistant")[i % 2] for i in range(len(row.turns))]
            messages = [{"role": r, "content": t} for r, t in zip(roles, row.turns, strict=True)]
            for end in range(1, len(messages), 2):
                _, ids = render(tokenizer, messages[:end], {})
                rows[hash_prompt(ids)] = {"dataset": split, "domain": row.domain, "input_ids": ids}
    return rows


prompts = prompts_of("train", settings["conversations_per_domain"]) | prompts_of("validation", 20)
frame = pd.DataFrame([{"prompt_id": name, **row} for name, row in prompts.items()])
rows = []
for temperature in settings["temperatures"]:
    for row in decode_trajectories(
        target,
        frame,
        seeds=[0],
        sampling=Sampling(temperature=temperature),
        max_new_tokens=settings["max_new_tokens"],
        stop_ids={tokenizer.eos_token_id},
        batch_size=settings["batch_size"],
    ):
        prompt = prompts[row["prompt_id"]]
        rows.append(
            {
                "prompt_id": row["prompt_id"],
                "split": prompt["dataset"],
                "domain": prompt["domain"],
                "temperature": temperature,
                "input_ids": prompt["input_ids"],
                "output_ids": row["output_ids"],
            }
        )
write_table(snakemake.output.responses, rows, RESPONSES)
