"""Write down what made this run: versions, revision, machine, configuration, seconds per rule."""

from pathlib import Path

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.provenance import git_revision, machine_facts, package_versions, write_json

start_job(snakemake.log[0])
folder = Path(snakemake.params.benchmarks)
seconds = {}
for path in sorted(folder.rglob("*.tsv")):
    rule = path.relative_to(folder).parts[0].removesuffix(".tsv")
    seconds[rule] = seconds.get(rule, 0.0) + float(pd.read_csv(path, sep="\t")["s"].sum())
write_json(
    snakemake.output.manifest,
    {
        "config": snakemake.params.config,
        "git_revision": git_revision(),
        "machine": machine_facts(),
        "rule_s": {rule: round(value, 2) for rule, value in seconds.items()},
        "seeds": {k: v["seeds"] for k, v in snakemake.params.config["decode"]["variants"].items()},
        "versions": package_versions(),
    },
)
