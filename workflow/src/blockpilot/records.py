"""The artifacts: one schema per table, validated on every write and read.

Units are the suffixes of column names (`_s`, `_ms`, `_tokens`, `_mb`) and are repeated in the
file's metadata together with the schema's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.provenance import atomic_path
from blockpilot.schemas import (
    ABLATIONS,
    ACCEPTANCE,
    CONTROL,
    CONVERSATIONS,
    COST,
    EVALUATION,
    GRID,
    HISTORY,
    LATENCY,
    OVERHEAD,
    PAIRS,
    PREDICTIONS,
    PROMPTS,
    RESPONSES,
    SCHEMES,
    SPLITS,
    SWEEP,
    TRAJECTORIES,
    Schema,
)

UNITS = {"_s": "seconds", "_ms": "milliseconds", "_tokens": "tokens", "_mb": "megabytes"}
__all__ = [
    "ABLATIONS",
    "ACCEPTANCE",
    "CONTROL",
    "CONVERSATIONS",
    "COST",
    "EVALUATION",
    "GRID",
    "HISTORY",
    "LATENCY",
    "OVERHEAD",
    "PAIRS",
    "PREDICTIONS",
    "PROMPTS",
    "RESPONSES",
    "SCHEMES",
    "SPLITS",
    "SWEEP",
    "TRAJECTORIES",
    "Schema",
    "open_table",
    "read_table",
    "write_table",
]


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
    units = {name: UNITS[end] for name in schema.names for end in UNITS if name.endswith(end)}
    return {"blockpilot.schema": schema.name, "blockpilot.units": json.dumps(units)}


def read_table(
    path: str | Path, schema: Schema, columns: list[str] | None = None, bucket: str | None = None
) -> pd.DataFrame:
    """Read an artifact, checking that it is whole and of this schema.

    With `bucket` only the rows whose prompt_id starts with it; other row groups stay undecoded.

    Raises:
        BlockPilotError: If the file is missing, damaged or of another kind.
    """
    with open_table(path, schema) as file:
        table = file.read(columns=columns) if bucket is None else _read(file, columns, bucket)
        return table.to_pandas()


def _read(file: pq.ParquetFile, columns: list[str] | None, bucket: str) -> pa.Table:
    place = file.schema_arrow.names.index("prompt_id")
    chunks = [file.metadata.row_group(i).column(place) for i in range(file.num_row_groups)]
    groups = [i for i, chunk in enumerate(chunks) if _may_hold(chunk.statistics, bucket)]
    asked = None if columns is None else [*columns, "prompt_id"]
    table = file.read_row_groups(groups, columns=asked)
    inside = pc.starts_with(table["prompt_id"], bucket)
    # A filter copies: spare it where the row groups hold nothing else.
    table = table if pc.all(inside).as_py() else table.filter(inside)
    return table if columns is None or "prompt_id" in columns else table.drop_columns("prompt_id")


def _may_hold(found: pq.Statistics | None, bucket: str) -> bool:
    if found is None or not found.has_min_max:
        return True
    return found.min[: len(bucket)] <= bucket <= found.max[: len(bucket)]


@contextmanager
def open_table(path: str | Path, schema: Schema) -> Iterator[pq.ParquetFile]:
    """Yield the file of an artifact, with the checks and errors of `read_table`."""
    remedy = "Delete it and run snakemake again; only what is missing is computed."
    try:
        with pq.ParquetFile(path) as file:
            stored = (file.schema_arrow.metadata or {}).get(b"blockpilot.schema", b"?").decode()
            if stored != schema.name:
                raise bad_input(f"{path}: schema", stored, repr(schema.name), remedy)
            _check_columns(set(file.schema_arrow.names), schema, path)
            yield file
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
