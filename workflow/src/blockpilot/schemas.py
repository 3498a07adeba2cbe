"""The schema of every artifact: names, types and key of its columns, in file order.

Units are the suffixes of column names (`_s`, `_ms`, `_tokens`, `_mb`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SPLITS = ("train", "validation", "test")

IDS = pa.list_(pa.int32())
SHORTS = pa.list_(pa.int16())
# A vector per row; its length (vocabulary or hidden size) is the writing model's.
VECTOR = pa.list_(pa.float32())
KEY = [("prompt_id", pa.string()), ("seed", pa.int64())]


@dataclass(frozen=True, slots=True)
class Schema:
    """An artifact's columns.

    Attributes:
        name: As in the README's table of artifacts.
        columns: Name and Arrow type, in file order.
        vectors: Columns stored as fixed-size lists of floating-point numbers.
        key: Columns that identify a row.
    """

    name: str
    columns: tuple[tuple[str, pa.DataType], ...]
    key: tuple[str, ...]
    vectors: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Return the column names in file order."""
        return [name for name, _ in self.columns]


CONVERSATIONS = Schema(
    "conversations",
    (
        ("conversation_id", pa.string()),
        ("dataset", pa.string()),
        ("domain", pa.string()),
        ("split", pa.string()),
        ("turns", pa.list_(pa.string())),
    ),
    key=("conversation_id",),
)
PROMPTS = Schema(
    "prompts",
    (
        ("prompt_id", pa.string()),
        ("conversation_id", pa.string()),
        ("turn", pa.int32()),
        ("dataset", pa.string()),
        ("domain", pa.string()),
        ("split", pa.string()),
        ("text", pa.string()),
        ("input_ids", IDS),
    ),
    key=("prompt_id",),
)
TRAJECTORIES = Schema(
    "trajectories",
    (
        *KEY,
        ("output_ids", IDS),
        ("stop_reason", pa.string()),
        ("source", pa.string()),
        ("greedy_share", pa.float64()),
        ("prefill_logits", VECTOR),
        ("prefill_hidden", VECTOR),
    ),
    key=("prompt_id", "seed"),
    vectors=("prefill_logits", "prefill_hidden"),
)
RESPONSES = Schema(
    "responses",
    (
        ("prompt_id", pa.string()),
        ("split", pa.string()),
        ("domain", pa.string()),
        ("temperature", pa.float64()),
        ("input_ids", IDS),
        ("output_ids", IDS),
    ),
    key=("prompt_id", "temperature"),
)
SWEEP = Schema(
    "sweep",
    (
        *KEY,
        ("block_size", pa.int16()),
        ("method", pa.string()),
        ("num_rounds", pa.int32()),
        ("num_committed", SHORTS),
        ("tau", pa.float64()),
        ("tpot_s", pa.float64()),
        ("equals_ar", pa.bool_()),
    ),
    key=("prompt_id", "seed", "block_size"),
)
PAIRS = Schema(
    "pairs",
    (
        *KEY,
        ("split", pa.string()),
        ("domain", pa.string()),
        ("prefill_logits", VECTOR),
        ("prefill_hidden", VECTOR),
        ("block_sizes", SHORTS),
        ("tau_by_block_size", pa.list_(pa.float32())),
        ("candidates", SHORTS),
        ("best_block_size", pa.int16()),
        ("class_index", pa.int16()),
        ("best_block_size_swept", pa.int16()),
        ("is_tie", pa.bool_()),
    ),
    key=("prompt_id", "seed"),
    vectors=("prefill_logits", "prefill_hidden"),
)
HISTORY = Schema(
    "history",
    (
        ("epoch", pa.int32()),
        ("train_loss", pa.float64()),
        ("validation_loss", pa.float64()),
        ("train_accuracy", pa.float64()),
        ("validation_accuracy", pa.float64()),
    ),
    key=("epoch",),
)
PREDICTIONS = Schema(
    "predictions",
    (
        *KEY,
        ("split", pa.string()),
        ("best_block_size", pa.int16()),
        ("predicted_block_size", pa.int16()),
        ("probabilities", pa.list_(pa.float32())),
    ),
    key=("prompt_id", "seed"),
)
EVALUATION = Schema(
    "evaluation",
    (
        ("policy", pa.string()),
        *KEY,
        ("split", pa.string()),
        ("domain", pa.string()),
        ("method", pa.string()),
        ("block_size", pa.int16()),
        ("block_sizes", SHORTS),
        ("num_committed", SHORTS),
        ("num_rounds", pa.int32()),
        ("num_tokens", pa.int32()),
        ("decode_s", pa.float64()),
        ("prefill_s", pa.float64()),
        ("select_s", pa.float64()),
        ("equals_ar", pa.bool_()),
    ),
    key=("policy", "prompt_id", "seed"),
)
# Live rows of a sample beside the replayed ones.
CONTROL = Schema("control", SWEEP.columns, key=(*SWEEP.key, "method"))
# What labelling cost in the control job, part by part.
COST = Schema(
    "cost",
    (
        ("method", pa.string()),
        ("part", pa.string()),  # trajectories, features and context, blocks; or a block size
        ("num_requests", pa.int32()),
        ("num_block_sizes", pa.int32()),
        ("total_s", pa.float64()),
    ),
    key=("method", "part"),
)
# Every size from 1 to 2B, and smaller verified sizes behind drafts of B and 2B.
GRID = Schema(
    "grid",
    (
        *KEY,
        ("draft_size", pa.int16()),
        ("block_size", pa.int16()),  # verified
        ("num_rounds", pa.int32()),
        ("num_committed", SHORTS),
        ("tau", pa.float64()),
    ),
    key=("prompt_id", "seed", "draft_size", "block_size"),
)
SCHEMES = Schema(
    "schemes",
    (
        *KEY,
        ("scheme", pa.string()),
        ("draft_temperature", pa.float64()),
        ("method", pa.string()),
        ("block_size", pa.int16()),
        ("num_rounds", pa.int32()),
        ("num_committed", SHORTS),
        ("tau", pa.float64()),
    ),
    key=("prompt_id", "seed", "scheme", "draft_temperature", "block_size"),
)
ACCEPTANCE = Schema(
    "acceptance",
    (
        *KEY,
        ("block_sizes", SHORTS),
        ("accepted", pa.list_(pa.list_(pa.int8()))),  # per block size, per anchor
    ),
    key=("prompt_id", "seed"),
)
LATENCY = Schema(
    "latency",
    (
        ("component", pa.string()),
        ("block_size", pa.int16()),
        ("context_tokens", pa.int32()),
        ("batch_size", pa.int32()),
        ("dtype", pa.string()),
        ("median_s", pa.float64()),
        ("p10_s", pa.float64()),
        ("p90_s", pa.float64()),
        ("n", pa.int32()),
    ),
    key=("component", "block_size", "context_tokens", "batch_size", "dtype"),
)
# What every setting of the ablations chose, on prompts of all splits.
ABLATIONS = Schema(
    "ablations",
    (
        ("radius", pa.int16()),
        ("depth", pa.int16()),
        ("width", pa.int32()),
        ("features", pa.string()),
        ("training_seed", pa.int64()),
        *KEY,
        ("split", pa.string()),
        ("best_block_size", pa.int16()),  # among the setting's candidates
        ("predicted_block_size", pa.int16()),
    ),
    key=("radius", "depth", "width", "features", "training_seed", "prompt_id", "seed"),
)
# Time and memory of choosing a size, of prefill, and of whole requests.
OVERHEAD = Schema(
    "overhead",
    (
        ("part", pa.string()),  # selector, target, draft
        ("component", pa.string()),  # select, prefill, ar, fixed
        ("radius", pa.int16()),  # of a selector; null otherwise, as are the next three
        ("depth", pa.int16()),
        ("width", pa.int32()),
        ("features", pa.string()),
        ("block_size", pa.int16()),  # of a round or request
        ("n", pa.int32()),
        ("median_s", pa.float64()),
        ("p10_s", pa.float64()),
        ("p90_s", pa.float64()),
        ("num_parameters", pa.int64()),
        ("parameters_mb", pa.float64()),
        ("activations_mb", pa.float64()),  # most memory at once besides parameters
    ),
    key=("part", "component", "radius", "depth", "width", "features", "block_size"),
)
