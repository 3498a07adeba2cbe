"""Train the pocket draft on the target's own responses and save it in the public layout."""

from pathlib import Path

import torch

from blockpilot.checkpoints import DraftConfig
from blockpilot.draft import save_draft
from blockpilot.jobs import start_job
from blockpilot.prompts import load_tokenizer
from blockpilot.provenance import write_json
from blockpilot.records import RESPONSES, read_table
from blockpilot.target import load_target
from blockpilot.training.draft import DraftTraining, train_draft
from blockpilot.training.examples import Example
from blockpilot.training.loop import LoopSettings

start_job(snakemake.log[0])
torch.set_num_threads(snakemake.threads)
settings = snakemake.params.draft
model = settings["model"]
target = load_target(snakemake.input.target, feature_layer_ids=model["target_layer_ids"])
tokenizer = load_tokenizer(snakemake.input.target)
like_target = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
)
config = DraftConfig(
    **{key: getattr(target.config, key) for key in like_target},
    **{key: value for key, value in model.items() if key != "target_layer_ids"},
    target_layer_ids=tuple(model["target_layer_ids"]),
    num_target_layers=target.config.num_hidden_layers,
    mask_token_id=tokenizer.mask_token_id,
)
responses = read_table(snakemake.input.responses, RESPONSES)


def examples(split):
    """Return the responses of one split as training examples."""
    return [
        Example(
            [*row.input_ids, *row.output_ids],
            [False] * len(row.input_ids) + [True] * len(row.output_ids),
            f"{row.domain}_T{row.temperature:g}",
        )
        for row in responses[responses["split"] == split].itertuples()
    ]


draft, state = train_draft(
    target,
    examples("train"),
    examples("validation"),
    config,
    DraftTraining(**settings["training"]),
    LoopSettings(**settings["loop"]),
    Path(snakemake.params.checkpoint),
)
output = Path(snakemake.output.model)
save_draft(draft, output)
write_json(output / "training.json", {"history": state.history, "elapsed_s": state.elapsed_s})
