"""Tables that stream through bounded memory: computed, kept and resumed a bucket at a time.

A bucket is the first hex digit of a prompt_id. Tables are sorted by prompt_id, so a bucket is a
contiguous range of rows, and becomes one row group.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.progress import track
from blockpilot.provenance import atomic_path, write_text
from blockpilot.records import Schema, open_table, write_table

BUCKETS = "0123456789abcdef"

Rows = Iterable[dict] | pd.DataFrame


def bucket_of(prompt_id: str) -> str:
    """Return the bucket of a prompt: the first digit of its id."""
    bucket = prompt_id[:1]
    if bucket not in tuple(BUCKETS):
        raise bad_input("prompt_id", prompt_id, "16 lower-case hex digits", "Hash the prompt.")
    return bucket


def count_buckets(prompt_ids: pd.Series) -> dict[str, int]:
    """Return the number of prompts in every bucket that has any: `sizes` of `write_in_parts`."""
    return prompt_ids.map(bucket_of).value_counts().to_dict()


def write_in_parts(
    paths: Sequence[str | Path],
    schema: Schema,
    compute: Callable[[str], Sequence[Rows]],
    *,
    sizes: Mapping[str, int],
    fingerprint: str,
    description: str,
) -> None:
    """Write tables bucket by bucket; a killed call resumes after its last finished bucket.

    The files are those of `write_table`, but for one row group per bucket.

    Args:
        paths: The tables, all of one schema; parts are kept in a hidden folder beside the first.
        schema: Its key starts with prompt_id.
        compute: Returns the rows of a bucket, one collection per path.
        sizes: Number of prompts by bucket; buckets without prompts are not computed.
        fingerprint: Stands for all that the rows depend on: parts of another one are dropped.
        description: Label of the progress bar.

    Raises:
        BlockPilotError: If rows are not of their bucket or do not fit the schema, or if vectors
            of different buckets differ in length.
    """
    _check_arguments(schema, sizes)
    paths = [Path(path) for path in paths]
    folder = paths[0].with_name(f".{paths[0].name}.parts")
    parts = {
        bucket: [folder / f"{bucket}-{index}.parquet" for index in range(len(paths))]
        for bucket in BUCKETS
        if sizes.get(bucket, 0)
    }
    _open_folder(folder, fingerprint)
    _fill(parts, schema, compute, sizes, description)
    for index, path in enumerate(paths):
        _join([files[index] for files in parts.values()], path, schema)
    shutil.rmtree(folder)


def _check_arguments(schema: Schema, sizes: Mapping[str, int]) -> None:
    if schema.key[0] != "prompt_id":
        remedy = "Write this table at once."
        raise bad_input(
            f"{schema.name}: first column of the key", schema.key[0], "prompt_id", remedy
        )
    for bucket in sizes:
        if bucket not in tuple(BUCKETS):
            raise bad_input("sizes: bucket", bucket, f"one of {BUCKETS}", "Use bucket_of.")


def _open_folder(folder: Path, fingerprint: str) -> None:
    stamp = folder / "fingerprint"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == fingerprint:
        return
    if folder.exists():
        shutil.rmtree(folder)
    write_text(stamp, fingerprint)


def _fill(
    parts: Mapping[str, Sequence[Path]],
    schema: Schema,
    compute: Callable[[str], Sequence[Rows]],
    sizes: Mapping[str, int],
    description: str,
) -> None:
    """Compute the buckets of which a file is missing: each file is whole, but a kill parts them."""
    done = [bucket for bucket, files in parts.items() if all(map(Path.is_file, files))]
    if done:
        print(f"resuming: {len(done)} of {len(parts)} parts are there", file=sys.stderr)
    total, initial = (sum(sizes[bucket] for bucket in found) for found in (parts, done))
    with track(description=description, total=total, initial=initial, unit="prompt") as bar:
        for bucket in parts:
            if bucket not in done:
                _write_bucket(bucket, parts[bucket], compute(bucket), schema)
                bar.update(sizes[bucket])


def _write_bucket(
    bucket: str, files: Sequence[Path], tables: Sequence[Rows], schema: Schema
) -> None:
    if len(tables) != len(files):
        raise ValueError(f"bucket {bucket}: {len(tables)} collections for {len(files)} tables")
    for path, rows in zip(files, tables, strict=True):
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        # A table without the column is left to write_table's complaint.
        for prompt_id in frame.get("prompt_id", ()):
            if str(prompt_id)[:1] != bucket:
                remedy = "Compute only the bucket's prompts."
                raise bad_input(f"bucket {bucket}: prompt_id", prompt_id, f"{bucket}...", remedy)
        write_table(path, frame, schema)


def _join(files: Sequence[Path], path: Path, schema: Schema) -> None:
    layouts = {file: layout for file in files if (layout := _layout(file, schema))}
    if not layouts:
        return write_table(path, [], schema)
    first = next(iter(layouts.values()))
    for file, layout in layouts.items():
        _check_layout(file, layout, first)
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, first, compression="zstd") as writer,
    ):
        for file in layouts:
            # No name for the table: it would keep a part alive while the next is read.
            writer.write_table(_load(file, schema))


def _layout(path: Path, schema: Schema) -> pa.Schema | None:
    """Return the stored types, or None for a file without rows: its vectors have no length."""
    with open_table(path, schema) as file:
        return file.schema_arrow if file.metadata.num_rows else None


def _check_layout(path: Path, found: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        if found.field(field.name).type != field.type:
            remedy = f"One model writes one length. Delete {path.parent} and run snakemake again."
            stored = str(found.field(field.name).type)
            raise bad_input(f"{path}: type of {field.name}", stored, str(field.type), remedy)


def _load(path: Path, schema: Schema) -> pa.Table:
    with open_table(path, schema) as file:
        return file.read()


def fingerprint(settings: object, inputs: Iterable[str | Path]) -> str:
    """Return a short sha256 over settings and the path, size and time of input files.

    Cheap, unlike a digest of contents: inputs may be gigabytes of weights.

    Args:
        settings: Plain containers, numbers and strings.
        inputs: Files, or folders that stand for all files in them.

    Raises:
        BlockPilotError: If an input does not exist.
    """
    facts = [_facts(file) for path in inputs for file in _files_of(Path(path))]
    text = json.dumps([settings, facts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _files_of(path: Path) -> list[Path]:
    if not path.exists():
        raise BlockPilotError(f"{path} does not exist. Run snakemake to make it.")
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _facts(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]
