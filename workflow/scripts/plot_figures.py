"""Plot tau against the block size, and the speedups of all policies."""

from blockpilot.jobs import start_job
from blockpilot.plots import plot_speedup, plot_tau
from blockpilot.tables import read_by_variant

start_job(snakemake.log[0])
plot_tau(
    read_by_variant(snakemake.input.tau),
    snakemake.params.trained_block_size,
    *snakemake.output.tau,
    title="Acceptance length by block size, held-out prompts",
)
plot_speedup(
    read_by_variant(snakemake.input.main),
    *snakemake.output.speedup,
    title="Speedup over autoregressive decoding, held-out prompts",
)
