"""Tabulate policies, tau by block size, the distribution of B*, and the prompts."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.metrics import (
    AVERAGE,
    best_size_distribution,
    check_leakage,
    summarise_policies,
    tau_by_block_size,
)
from blockpilot.records import EVALUATION, PAIRS, PROMPTS, SWEEP, TRAJECTORIES, read_table
from blockpilot.tables import main_table, write_csv, write_markdown
from blockpilot.texts import describe_texts

start_job(snakemake.log[0])
variants, outside = snakemake.params.variants, snakemake.params.out_of_domain
statistics = {"resamples": snakemake.params.resamples, "seed": snakemake.params.seed}
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
sweeps = {v: [p for p in snakemake.input.sweeps if f"/{v}/" in p] for v in variants}

inputs = (snakemake.input.trajectories, snakemake.input.pairs, snakemake.input.evaluations)
summaries, taus, sizes, texts = [], [], [], []
for variant, texts_path, pairs_path, path in zip(variants, *inputs, strict=True):
    pairs, evaluation = read_table(pairs_path, PAIRS), read_table(path, EVALUATION)
    sweep = pd.concat([read_table(p, SWEEP) for p in sweeps[variant]])
    check_leakage(evaluation, pairs, prompts)
    frames = (
        summarise_policies(evaluation, prompts, out_of_domain=outside, **statistics),
        tau_by_block_size(sweep, prompts, out_of_domain=outside, **statistics),
        best_size_distribution(pairs, prompts, out_of_domain=outside),
        describe_texts(read_table(texts_path, TRAJECTORIES), prompts),
    )
    for table, frame in zip((summaries, taus, sizes, texts), frames, strict=True):
        frame.insert(0, "decode", variant)
        table.append(frame)

main = pd.concat(summaries)
write_csv(main, snakemake.output.main)
caption = "Held-out prompts; brackets are 95 % paired bootstrap intervals."
write_markdown(main_table(main), snakemake.output.main_markdown, caption=caption)
average = main_table(main[main["group"] == AVERAGE]).drop(columns="group")
write_markdown(average, snakemake.output.headline, caption=caption)
write_csv(pd.concat(taus), snakemake.output.tau)
write_csv(pd.concat(sizes), snakemake.output.best_sizes)
write_csv(pd.concat(texts), snakemake.output.texts)
counts = prompts.assign(tokens=prompts["input_ids"].map(len)).groupby(["dataset", "split"])
write_csv(
    counts.agg(
        prompts=("prompt_id", "nunique"),
        conversations=("conversation_id", "nunique"),
        median_prompt_tokens=("tokens", "median"),
    ).reset_index(),
    snakemake.output.prompts,
)
