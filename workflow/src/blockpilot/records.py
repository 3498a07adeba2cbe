"""The artifacts: one schema per table, validated on every write and read.

Units are the suffixes of column names (`_s`, `_ms`, `_tokens`, `_mb`) and are repeated in the
file's metadata together with the schema's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.provenance import atomic_path

UNITS = {"_s": "seconds", "_ms": "milliseconds", "_tokens": "tokens", "_mb": "megabytes"}
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


def write_table(path: str | Path, rows: Iterable[dict] | pd.DataFrame, schema: Schema) -> None:
    """Write rows as zstd Parquet, atomically, sorted by the schema's key.

    Sorting makes a file independent of the order in which its rows were computed.

    Raises:
        BlockPilotError: If columns are missing or unknown, or a key occurs twice.
    """
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if frame.empty:
        frame = pd.DataFrame(columns=schema.names)
    _check_columns(set(frame.columns), schema, path)
    frame = frame.sort_values(list(schema.key), kind="stable", ignore_index=True)
    if frame.duplicated(list(schema.key)).any():
        row = frame.loc[frame.duplicated(list(schema.key)), list(schema.key)].iloc[0].to_dict()
        raise bad_input(f"{path}: key", row, "one row per key", "Remove the repeated row.")
    arrays = [pa.array(frame[name], _stored_type(frame, name, schema)) for name in schema.names]
    table = pa.table(arrays, names=schema.names).replace_schema_metadata(_metadata(schema))
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _stored_type(frame: pd.DataFrame, name: str, schema: Schema) -> pa.DataType:
    if name in schema.vectors and len(frame):
        return pa.list_(pa.float32(), len(frame[name].iloc[0]))
    return dict(schema.columns)[name]


def _metadata(schema: Schema) -> dict[str, str]:
    units = {
        name: unit
        for name in schema.names
        for suffix, unit in UNITS.items()
        if name.endswith(suffix)
    }
    return {"blockpilot.schema": schema.name, "blockpilot.units": json.dumps(units)}


def read_table(path: str | Path, schema: Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Read an artifact, checking that it is whole and of this schema.

    Raises:
        BlockPilotError: If the file is missing, damaged or of another kind.
    """
    remedy = "Delete it and run snakemake again; only what is missing is computed."
    try:
        file = pq.ParquetFile(path)
        stored = (file.schema_arrow.metadata or {}).get(b"blockpilot.schema", b"?").decode()
        if stored != schema.name:
            raise bad_input(f"{path}: schema", stored, repr(schema.name), remedy)
        _check_columns(set(file.schema_arrow.names), schema, path)
        return file.read(columns=columns).to_pandas()
    except FileNotFoundError:
        raise BlockPilotError(f"{path} does not exist. Run snakemake to make it.") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise BlockPilotError(f"{path} is not a whole Parquet file ({error}). {remedy}") from None


def _check_columns(found: set[str], schema: Schema, path: str | Path) -> None:
    if found != set(schema.names):
        missing = sorted(set(schema.names) - found)
        unknown = sorted(found - set(schema.names))
        raise BlockPilotError(
            f"{path}: columns of a {schema.name} table: missing {missing}, unknown {unknown}; "
            f"allowed: {schema.names}. Delete the file and run snakemake again."
        )
