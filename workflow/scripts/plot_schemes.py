"""Plot the acceptance length of the verification schemes."""

from blockpilot.comparison_plots import plot_schemes
from blockpilot.jobs import start_job
from blockpilot.tables import read_by_variant

start_job(snakemake.log[0])
tables = read_by_variant(snakemake.input.schemes)
plot_schemes(
    {decode: table[table["split"] == "test"] for decode, table in tables.items()},
    snakemake.params.trained_block_size,
    *snakemake.output.schemes,
    title="Acceptance length by verification scheme, held-out prompts",
)
