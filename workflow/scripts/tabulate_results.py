"""Tabulate policies, tau by block size and by prompt, the distribution of B*, texts, data sets."""

from pathlib import Path

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.metrics import (
    AVERAGE,
    best_size_distribution,
    check_leakage,
    summarise_policies,
    tau_by_block_size,
    tau_by_prompt,
)
from blockpilot.provenance import write_text
from blockpilot.records import EVALUATION, PAIRS, PROMPTS, SWEEP, TRAJECTORIES, read_table
from blockpilot.reported import reported_rows
from blockpilot.tables import main_table, write_csv, write_for_people, write_markdown
from blockpilot.texts import describe_datasets, describe_texts, length_counts

# Columns read of the texts: their vectors are large.
TEXTS = ["prompt_id", "output_ids", "stop_reason", "greedy_share"]

start_job(snakemake.log[0])
output, papers = snakemake.output, snakemake.input.reported
variants, outside = snakemake.params.variants, snakemake.params.out_of_domain
statistics = {"resamples": snakemake.params.resamples, "seed": snakemake.params.seed}
prompts = pd.concat([read_table(path, PROMPTS) for path in snakemake.input.prompts])
sweeps = {v: [p for p in snakemake.input.sweeps if f"/{v}/" in p] for v in variants}

inputs = (snakemake.input.trajectories, snakemake.input.pairs, snakemake.input.evaluations)
tables = {name: [] for name in ("main", "tau", "prompt_taus", "best_sizes", "texts", "lengths")}
decoded = {}
for variant, texts_path, pairs_path, path in zip(variants, *inputs, strict=True):
    pairs, evaluation = read_table(pairs_path, PAIRS), read_table(path, EVALUATION)
    sweep = pd.concat([read_table(p, SWEEP) for p in sweeps[variant]])
    trajectories = read_table(texts_path, TRAJECTORIES, TEXTS)
    decoded[variant] = trajectories
    check_leakage(evaluation, pairs, prompts)
    found = {
        "main": summarise_policies(evaluation, prompts, out_of_domain=outside, **statistics),
        "tau": tau_by_block_size(sweep, prompts, out_of_domain=outside, **statistics),
        "prompt_taus": tau_by_prompt(sweep, prompts, out_of_domain=outside),
        "best_sizes": best_size_distribution(pairs, prompts, out_of_domain=outside),
        "texts": describe_texts(trajectories, prompts),
        "lengths": length_counts(trajectories, prompts, out_of_domain=outside),
    }
    for name, frame in found.items():
        frame.insert(0, "decode", variant)
        tables[name].append(frame)

main = pd.concat(tables.pop("main"))
for name, frames in tables.items():
    write_csv(pd.concat(frames), output[name])
caption = "Held-out prompts; brackets are 95 % paired bootstrap intervals."
write_for_people(
    main,
    csv=output.main,
    md=output.main_markdown,
    html=output.main_html,
    caption=caption,
    reported=reported_rows(papers, "main"),
    shown=main_table(main),
)
average = main_table(main[main["group"] == AVERAGE]).drop(columns="group")
write_markdown(average, output.headline, caption=caption)
datasets = describe_datasets(prompts, decoded)
headings = {name: name.replace("_", " ") for name in datasets}
headings |= {f"{v}_median_output_tokens": f"median output tokens, {v}" for v in variants}
write_for_people(
    datasets,
    csv=output.datasets,
    md=output.datasets_markdown,
    html=output.datasets_html,
    columns=headings,
    caption="Prompts per data set and split; lengths in tokens, those of answers per variant.",
)
write_text(output.reported, Path(papers).read_text(encoding="utf-8"))
