"""Draw all figures whose tables this run has."""

from pathlib import Path

from blockpilot.figures import draw_figure
from blockpilot.jobs import start_job
from blockpilot.progress import track

start_job(snakemake.log[0])
params, output = snakemake.params, snakemake.output
tables_folder = Path(snakemake.input.tables[0]).parent
files = list(zip(params.figures, output.svg, output.png, strict=True))
for name, *paths in track(files, description="figures", unit="figure"):
    draw_figure(name, tables_folder, params.trained_block_size, *paths)
