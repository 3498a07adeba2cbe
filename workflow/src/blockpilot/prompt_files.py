"""Files of prompts, and of answers that another engine wrote: records, checked one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot.errors import bad_input

SUFFIXES = (".jsonl", ".json", ".parquet", ".txt")
TEXT_COLUMN = "prompt"
RESPONSE_COLUMN = "response"
# What to do about a missing column: which settings name one.
FILE_REMEDY = "Set column or domain_column."
RESPONSES_REMEDY = "Set column, response_column or domain_column."

Records = Iterator[tuple[str, dict]]  # (place to name in errors, values by column)


def read_records(
    path: Path, columns: Sequence[str], remedy: str = FILE_REMEDY, optional: Sequence[str] = ()
) -> Records:
    """Return the records of a text, JSONL or Parquet file, read on demand.

    Args:
        path: One of `SUFFIXES`; every line of a .txt file is a record with `TEXT_COLUMN` alone.
        columns: Every record has them.
        remedy: What to do about a missing column.
        optional: Also read where the file has them.

    Raises:
        BlockPilotError: If the file is missing, damaged or lacks a column.
    """
    if path.suffix not in SUFFIXES:
        raise bad_input(f"{path}: suffix", path.suffix, ", ".join(SUFFIXES), "Convert the file.")
    if not path.is_file():
        raise bad_input(str(path), "missing", "an existing file", "Correct the path or make it.")
    if path.suffix == ".parquet":
        return _read_parquet(path, columns, remedy, optional)
    return _read_lines(path, columns, remedy)


def _read_parquet(
    path: Path, columns: Sequence[str], remedy: str, optional: Sequence[str]
) -> Records:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_columns(str(path), columns, names, remedy)
            wanted = [*columns, *(name for name in optional if name in names)]
            for batch in file.iter_batches(columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", record
    except (pa.ArrowException, OSError) as error:
        raise bad_input(str(path), str(error), "a whole Parquet file", "Write it again.") from None


def _read_lines(path: Path, columns: Sequence[str], remedy: str) -> Records:
    """Yield the records of a text or JSONL file; empty lines at its end are none."""
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    for number, line in enumerate(content.split(b"\n") if content else [], start=1):
        where = f"{path}: line {number}"
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            value = line[error.start : error.end]
            raise bad_input(where, value, "UTF-8 text", "Save the file as UTF-8.") from None
        record = {TEXT_COLUMN: text} if path.suffix == ".txt" else _parse_object(where, text)
        _check_columns(where, columns, list(record), remedy)
        yield where, record


def _parse_object(where: str, line: str) -> dict:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise bad_input(where, line[:80], "a JSON object", "Write one prompt on every line.")
    return record


def _check_columns(
    where: str, columns: Sequence[str], available: Sequence[str], remedy: str
) -> None:
    for column in columns:
        if column not in available:
            allowed = ", ".join(available) or "none"
            raise bad_input(f"{where}: column", column, allowed, remedy)


def check_turns(where: str, value: object) -> list[str]:
    """Return a conversation's user texts, given as one text or as a list.

    Raises:
        BlockPilotError: If there is none, or one that `check_text` refuses.
    """
    if isinstance(value, list) and value:
        return [check_text(f"{where}[{turn}]", text) for turn, text in enumerate(value)]
    return [check_text(where, value)]


def check_single_turn(where: str, value: object) -> list[str]:
    """Return the user text of a conversation of one turn, in a list.

    Raises:
        BlockPilotError: For lists, and for what `check_text` refuses.
    """
    allowed = "a text with more than whitespace (one turn)"
    if isinstance(value, list):
        remedy = "Later turns would need the other engine's earlier answers. Keep single turns."
        raise bad_input(where, f"a list of {len(value)}", allowed, remedy)
    return [check_text(where, value, allowed)]


def check_text(
    where: str,
    value: object,
    allowed: str = "a text with more than whitespace, or a list of such texts (the user's turns)",
) -> str:
    """Return `value` if it is a text that says something.

    Raises:
        BlockPilotError: If it is not, or holds half a character.
    """
    text = value if isinstance(value, str) else ""
    if not text.strip() or not is_encodable(text):
        raise bad_input(where, text[:80] or value, allowed, "Write it or remove it.")
    return text


def is_encodable(text: str) -> bool:
    """Return whether a file or tokenizer can hold `text`."""
    # A JSON escape may name half a character.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_external(variant_name: str, scheme: str, temperature: float, dataset: str) -> None:
    """Check that a variant's sampling can be replayed on text that another engine wrote.

    Args:
        variant_name: Key of `decode.variants`.
        scheme: Its `sampling`.
        temperature: Its temperature; at 0 every scheme is greedy and needs no noise.
        dataset: Name of a data set with the source `responses`.

    Raises:
        BlockPilotError: For `coupled` and `rejection` above temperature 0.
    """
    reasons = {
        "coupled": "That text was not drawn with this project's noise: which noise chose each "
        "token is unknown, so the draft cannot share it.",
        "rejection": "That text is given, and under rejection its text depends on the block size.",
    }
    if scheme in reasons and temperature > 0:
        raise bad_input(
            f"decode.variants.{variant_name}.sampling",
            scheme,
            f"match, for the text of another engine (data set {dataset})",
            f"{reasons[scheme]} Set decode.variants.{variant_name}.sampling=match.",
        )
