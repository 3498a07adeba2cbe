"""Render every turn as a prompt; later turns contain the target's own greedy answers."""

from blockpilot.jobs import start_job
from blockpilot.pair import load_pair
from blockpilot.prompts import extend_conversations, load_tokenizer
from blockpilot.records import CONVERSATIONS, PROMPTS, read_table, write_table
from blockpilot.trajectories import answer_greedily

start_job(snakemake.log[0], gpu=snakemake.resources.get("gpu", 0))
loading, max_new_tokens = snakemake.params.loading, snakemake.params.answer_max_new_tokens
target, _, stop_ids = load_pair(**loading, with_draft=False)
tokenizer = load_tokenizer(loading["pair"]["target"], loading["pair"]["target_revision"])


def answer(prompts):
    """Return the target's greedy answers as texts."""
    outputs = answer_greedily(
        target, prompts, max_new_tokens, stop_ids, snakemake.params.batch_size
    )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in outputs]


rows = extend_conversations(
    read_table(snakemake.input.conversations, CONVERSATIONS),
    tokenizer,
    answer,
    loading["pair"]["template_options"],
    target.context_tokens,
    max_new_tokens,
)
write_table(snakemake.output.prompts, rows, PROMPTS)
