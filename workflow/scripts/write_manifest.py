"""Write down what made this run: versions, revision, machine, configuration, costs per rule."""

from datetime import date

from blockpilot.job_costs import job_costs
from blockpilot.jobs import start_job
from blockpilot.provenance import git_revision, machine_facts, package_versions, write_json

start_job(snakemake.log[0])
params = snakemake.params
variants = params.config["decode"]["variants"]
write_json(
    snakemake.output.manifest,
    {
        "config": params.config,
        "date": date.today().isoformat(),
        "git_revision": git_revision(),
        "machine": machine_facts(),
        **job_costs(params.benchmarks),
        "seeds": {name: own["seeds"] for name, own in variants.items()},
        "trained_block_size": params.trained_block_size,
        "versions": package_versions(),
    },
)
