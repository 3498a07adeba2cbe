# BlockPilot: how long a block should a diffusion drafter propose for this prompt?
#
#   snakemake --cores 2                                    the default experiment, on the embedded pair
#   snakemake --cores 2 --config experiment=smoke          another file of conf/experiment/
#   snakemake --cores 2 --config 'overrides=["selector.width=512"]'
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/prompts.smk"
include: "workflow/rules/trajectories.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/replay.smk"
include: "workflow/rules/selector.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/ablations.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/train_pocket.smk"


# prompts -> trajectories -> sweeps -> pairs (p(x), B*) -> selector -> evaluation -> tables, figures
rule all:
    default_target: True
    input:
        rules.write_manifest.output,
        rules.plot_figures.output,
        table_results(),


# The labels alone: pairs (p(x), B*) of every decode variant.
rule label:
    input:
        expand(rules.merge_pairs.output.pairs, decode=VARIANTS),
