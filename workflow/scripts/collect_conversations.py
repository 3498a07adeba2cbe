"""Collect the conversations of one data set, each in its split."""

from blockpilot.jobs import start_job
from blockpilot.prompts import collect_conversations
from blockpilot.records import CONVERSATIONS, write_table

start_job(snakemake.log[0])
rows = collect_conversations(snakemake.wildcards.dataset, snakemake.params.settings)
write_table(snakemake.output.conversations, rows, CONVERSATIONS)
