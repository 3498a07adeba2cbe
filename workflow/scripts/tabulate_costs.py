"""Tabulate what choosing a size costs, and after how many requests the labels are earned back."""

import pandas as pd

from blockpilot.costs import TABLE_COLUMNS, overhead_table, policy_cost_table
from blockpilot.jobs import start_job
from blockpilot.knobs import Setting, distinct_settings, read_settings
from blockpilot.records import EVALUATION, OVERHEAD, PAIRS, PROMPTS, read_table
from blockpilot.reported import reported_rows
from blockpilot.tables import write_csv, write_for_people

CAPTION = (
    "Milliseconds are medians with the 10th and 90th percentile; activations are the most memory "
    "at once beyond the parameters; those of the draft are what drafting adds."
)


def spent_s(paths, variant):
    """Return the job seconds of one variant's benchmark files."""
    own = [path for path in paths if f"/{variant}/" in path or path.endswith(f"/{variant}.tsv")]
    return sum(float(pd.read_csv(path, sep="\t")["s"].sum()) for path in own)


start_job(snakemake.log[0])
params, inputs, output = snakemake.params, snakemake.input, snakemake.output
prompts = pd.concat([read_table(path, PROMPTS) for path in inputs.prompts])
settings = distinct_settings(read_settings(params.settings))
overhead = read_table(inputs.overhead, OVERHEAD)
write_for_people(
    overhead_table(overhead, settings, Setting(**params.default)),
    output.overhead,
    output.overhead_markdown,
    output.overhead_html,
    columns=TABLE_COLUMNS,
    caption=CAPTION,
    reported=reported_rows(inputs.reported, "overhead"),
)
costs = []
for variant, pairs, evaluation in zip(
    params.variants, inputs.pairs, inputs.evaluations, strict=True
):
    seconds = {
        "label_s": spent_s(inputs.label_seconds, variant),
        "train_s": spent_s(inputs.train_seconds, variant),
    }
    table = policy_cost_table(
        read_table(evaluation, EVALUATION),
        read_table(pairs, PAIRS, ["prompt_id", "seed", "split"]),
        seconds,
        prompts,
        out_of_domain=params.out_of_domain,
        resamples=params.resamples,
        seed=params.seed,
    )
    table.insert(0, "decode", variant)
    costs.append(table)
write_csv(pd.concat(costs), output.policy_cost)
