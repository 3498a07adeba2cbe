"""Write down the configured latencies of one pass, by hand until they are measured."""

from blockpilot.jobs import start_job
from blockpilot.latency import hand_written_table
from blockpilot.records import LATENCY, write_table

start_job(snakemake.log[0])
rows = hand_written_table(snakemake.params.latency, snakemake.params.dtype)
write_table(snakemake.output.latency, rows, LATENCY)
