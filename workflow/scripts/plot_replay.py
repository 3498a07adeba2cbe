"""Plot the findings, what drafting longer gives, the bounds, and the cost of labels."""

from blockpilot.comparison_plots import plot_draft_verify, plot_findings
from blockpilot.cost_plots import plot_bounds, plot_cost
from blockpilot.jobs import start_job
from blockpilot.tables import read_by_variant

start_job(snakemake.log[0])
trained, output = snakemake.params.trained_block_size, snakemake.output
tables = {name: read_by_variant(path) for name, path in snakemake.input.items()}
plot_findings(
    tables["distribution"],
    tables["findings"],
    trained,
    *output.findings,
    title="Which of all block sizes is best, train and test prompts",
)
plot_draft_verify(
    tables["draft_verify"],
    trained,
    *output.draft_verify,
    title="Drafting more than is verified, held-out prompts",
)
plot_bounds(
    tables["bounds"],
    *output.bounds,
    title="What choosing block sizes could gain at best, held-out prompts",
)
plot_cost(tables["cost"], *output.cost, title="What a label costs, live and by replay")
