"""Plot tau against the block size, and the speedups of all policies."""

import pandas as pd

from blockpilot.jobs import start_job
from blockpilot.plots import plot_speedup, plot_tau

start_job(snakemake.log[0])


def by_variant(path):
    """Return a table's rows per decode variant, in file order."""
    return {v: rows for v, rows in pd.read_csv(path).groupby("decode", sort=False)}


plot_tau(
    by_variant(snakemake.input.tau),
    snakemake.params.trained_block_size,
    *snakemake.output.tau,
    title="Acceptance length by block size, held-out prompts",
)
plot_speedup(
    by_variant(snakemake.input.main),
    *snakemake.output.speedup,
    title="Speedup over autoregressive decoding, held-out prompts",
)
