"""Artifacts: every schema round-trips, and whatever does not fit one is named."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from blockpilot import records
from blockpilot.errors import BlockPilotError
from blockpilot.provenance import atomic_path, write_json
from blockpilot.records import read_table, write_table

VECTORS = {
    "prefill_logits": np.array([0.5, -1.25, 3.0], np.float32),
    "prefill_hidden": np.array([1.0, 2.0], np.float32),
}
KEY = {"prompt_id": "00ff00ff00ff00ff", "seed": 0}
WHERE = {"split": "train", "domain": "code"}
ROWS = {
    records.CONVERSATIONS: {
        "conversation_id": "c1",
        "dataset": "prose",
        "domain": "prose",
        "split": "test",
        "turns": ["Hello?", "Größer als 2 · 3?"],
    },
    records.PROMPTS: {
        "prompt_id": "00ff00ff00ff00ff",
        "conversation_id": "c1",
        "turn": 1,
        "dataset": "code",
        "text": "<|user|>\nhi",
        "input_ids": [1, 2, 151_935],
        **WHERE,
    },
    records.TRAJECTORIES: {
        **KEY,
        "output_ids": [5, 6, 7],
        "stop_reason": "length",
        "source": "ours",
        "greedy_share": 2 / 3,
        **VECTORS,
    },
    records.RESPONSES: {
        "prompt_id": "00ff00ff00ff00ff",
        **WHERE,
        "temperature": 0.7,
        "input_ids": [1, 2],
        "output_ids": [3],
    },
    records.SWEEP: {
        **KEY,
        "block_size": 8,
        "method": "live",
        "num_rounds": 2,
        "num_committed": [3, 1],
        "tau": 2.0,
        "tpot_s": 0.0125,
        "equals_ar": True,
    },
    records.PAIRS: {
        **KEY,
        **WHERE,
        **VECTORS,
        "block_sizes": [2, 3, 4, 5, 8],
        "tau_by_block_size": [1.5, 2.0, 2.25, 2.0, 1.75],
        "candidates": [3, 4, 5],
        "best_block_size": 4,
        "class_index": 1,
        "best_block_size_swept": 4,
        "is_tie": False,
    },
    records.HISTORY: {
        "epoch": 1,
        "train_loss": 1.5,
        "validation_loss": 1.75,
        "train_accuracy": 0.25,
        "validation_accuracy": 0.5,
    },
    records.PREDICTIONS: {
        **KEY,
        "split": "validation",
        "best_block_size": 4,
        "predicted_block_size": 5,
        "probabilities": [0.25, 0.25, 0.5],
    },
    records.EVALUATION: {
        "policy": "fixed:4",
        **KEY,
        **WHERE,
        "method": "live",
        "block_size": 4,
        "block_sizes": [4, 4, 2],
        "num_committed": [4, 1, 1],
        "num_rounds": 3,
        "num_tokens": 7,
        "decode_s": 0.5,
        "prefill_s": 0.25,
        "select_s": 0.0,
        "equals_ar": True,
    },
    records.LATENCY: {
        "component": "verify",
        "block_size": 8,
        "context_tokens": 256,
        "batch_size": 1,
        "dtype": "float32",
        "median_s": 0.005,
        "p10_s": 0.004,
        "p90_s": 0.0075,
        "n": 30,
    },
    records.COST: {
        "method": "replay",
        "part": "blocks",
        "num_requests": 8,
        "num_block_sizes": 9,
        "total_s": 0.5,
    },
}
ROUNDS = {"num_rounds": 2, "num_committed": [3, 1], "tau": 2.0}
ROWS |= {
    records.CONTROL: ROWS[records.SWEEP],
    records.GRID: {**KEY, "draft_size": 16, "block_size": 4, **ROUNDS},
    records.SCHEMES: {
        **KEY,
        "scheme": "coupled",
        "draft_temperature": 0.5,
        "method": "replay",
        "block_size": 4,
        **ROUNDS,
    },
    records.ACCEPTANCE: {**KEY, "block_sizes": [4, 8], "accepted": [[3, 0, 1], [5, 0, 1]]},
}
SETTING = {"radius": 2, "depth": 1, "width": 40_000, "features": "raw"}
ROWS |= {
    records.ABLATIONS: {
        **SETTING,
        "training_seed": 3,
        **KEY,
        "split": "test",
        "best_block_size": 8,
        "predicted_block_size": 9,
    },
    records.OVERHEAD: {
        "part": "selector",
        "component": "select",
        **SETTING,
        "block_size": 8,
        "n": 50,
        "median_s": 0.002,
        "p10_s": 0.001,
        "p90_s": 0.004,
        "num_parameters": 3_000_000_000,
        "parameters_mb": 12_000.0,
        "activations_mb": 0.5,
    },
}
SCHEMAS = pytest.mark.parametrize("schema", ROWS, ids=lambda schema: schema.name)


def plain(value: object) -> object:
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return [plain(item) for item in value] if isinstance(value, list) else value


@SCHEMAS
def test_every_schema_round_trips(schema, tmp_path) -> None:
    path = tmp_path / "new" / "table.parquet"
    write_table(path, [ROWS[schema]], schema)
    frame = read_table(path, schema)
    assert list(frame.columns) == schema.names
    row = {name: plain(value) for name, value in frame.iloc[0].items()}
    assert row == {name: plain(value) for name, value in ROWS[schema].items()}
    assert {p.name for p in path.parent.iterdir()} == {"table.parquet"}


@SCHEMAS
def test_a_table_without_rows_round_trips(schema, tmp_path) -> None:
    write_table(tmp_path / "t.parquet", [], schema)
    frame = read_table(tmp_path / "t.parquet", schema)
    assert list(frame.columns) == schema.names
    assert frame.empty


def test_all_schemas_of_the_module_are_tested() -> None:
    found = {value.name for value in vars(records).values() if isinstance(value, records.Schema)}
    assert found == {schema.name for schema in ROWS}


def test_missing_values_stay_missing(tmp_path) -> None:
    replayed = {**ROWS[records.SWEEP], "method": "replay", "tpot_s": None, "equals_ar": None}
    rows = [{**ROWS[records.SWEEP], "prompt_id": "aa"}, replayed]
    write_table(tmp_path / "t.parquet", rows, records.SWEEP)
    frame = read_table(tmp_path / "t.parquet", records.SWEEP)
    assert frame["tpot_s"].isna().tolist() == [True, False]
    assert frame["equals_ar"].isna().tolist() == [True, False]
    per_round = {**ROWS[records.EVALUATION], "policy": "per_round", "block_size": None}
    rows = [ROWS[records.EVALUATION], per_round]
    write_table(tmp_path / "e.parquet", rows, records.EVALUATION)
    sizes = read_table(tmp_path / "e.parquet", records.EVALUATION)["block_size"]
    assert sizes[0] == 4
    assert sizes.isna().tolist() == [False, True]


def test_rows_are_sorted_by_the_key(tmp_path) -> None:
    keys = [("b", 1, 4), ("a", 2, 4), ("b", 0, 8), ("a", 2, 3), ("b", 0, 4)]
    names = ("prompt_id", "seed", "block_size")
    rows = [{**ROWS[records.SWEEP], **dict(zip(names, key, strict=True))} for key in keys]
    write_table(tmp_path / "1.parquet", rows, records.SWEEP)
    write_table(tmp_path / "2.parquet", pd.DataFrame(rows[::-1]), records.SWEEP)
    frame = read_table(tmp_path / "1.parquet", records.SWEEP)
    assert list(frame[list(names)].itertuples(index=False, name=None)) == sorted(keys)
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()


def test_types_vectors_and_compression_are_those_of_the_schema(tmp_path) -> None:
    write_table(tmp_path / "t.parquet", [ROWS[records.PAIRS]], records.PAIRS)
    file = pq.ParquetFile(tmp_path / "t.parquet")
    types = {field.name: str(field.type) for field in file.schema_arrow}
    assert types["prefill_logits"] == "fixed_size_list<element: float>[3]"
    assert types["prefill_hidden"] == "fixed_size_list<element: float>[2]"
    assert types["best_block_size"] == "int16"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_units_are_in_the_metadata(tmp_path) -> None:
    write_table(tmp_path / "t.parquet", [ROWS[records.EVALUATION]], records.EVALUATION)
    metadata = pq.ParquetFile(tmp_path / "t.parquet").schema_arrow.metadata
    assert metadata[b"blockpilot.schema"] == b"evaluation"
    assert json.loads(metadata[b"blockpilot.units"]) == {
        "decode_s": "seconds",
        "num_tokens": "tokens",
        "prefill_s": "seconds",
        "select_s": "seconds",
    }


@pytest.mark.parametrize("name", ["sweep", "history"])
def test_a_repeated_key_is_an_error(name, tmp_path) -> None:
    schema = next(schema for schema in ROWS if schema.name == name)
    path = tmp_path / "t.parquet"
    with pytest.raises(BlockPilotError, match=r"t\.parquet: key is .*one row per key") as error:
        write_table(path, [ROWS[schema], ROWS[schema]], schema)
    for column in schema.key:
        assert f"{column!r}: {ROWS[schema][column]!r}" in str(error.value)
    assert not path.exists()


def test_missing_and_unknown_columns_are_named(tmp_path) -> None:
    row = {**ROWS[records.HISTORY], "lr": 0.1}
    del row["train_loss"]
    with pytest.raises(BlockPilotError, match=r"missing \['train_loss'\], unknown \['lr'\]"):
        write_table(tmp_path / "t.parquet", [row], records.HISTORY)
    assert list(tmp_path.iterdir()) == []


def test_only_asked_columns_are_read(tmp_path) -> None:
    write_table(tmp_path / "t.parquet", [ROWS[records.SWEEP]], records.SWEEP)
    frame = read_table(tmp_path / "t.parquet", records.SWEEP, columns=["seed", "tau"])
    assert list(frame.columns) == ["seed", "tau"]


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_a_truncated_file_is_named_with_the_remedy(keep, tmp_path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [ROWS[records.SWEEP]], records.SWEEP)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep >= 1 else keep * len(data))])
    with pytest.raises(BlockPilotError, match="not a whole Parquet file") as error:
        read_table(path, records.SWEEP)
    assert str(path) in str(error.value)
    assert "Delete it and run snakemake again" in str(error.value)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(BlockPilotError, match=r"no\.parquet does not exist"):
        read_table(tmp_path / "no.parquet", records.SWEEP)


def test_a_file_of_another_schema_is_refused(tmp_path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [ROWS[records.HISTORY]], records.HISTORY)
    with pytest.raises(BlockPilotError, match=r"schema is 'history'; allowed: 'sweep'"):
        read_table(path, records.SWEEP)
    pd.DataFrame([ROWS[records.HISTORY]]).to_parquet(path)  # the columns alone are not enough
    with pytest.raises(BlockPilotError, match=r"schema is '\?'; allowed: 'history'"):
        read_table(path, records.HISTORY)


def test_atomic_path_keeps_the_old_file_when_the_block_raises(tmp_path) -> None:
    path = tmp_path / "deep" / "a.json"

    def fail() -> None:
        with atomic_path(path) as temporary:
            assert temporary.parent == path.parent
            assert temporary.suffix == ".json"
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(path.parent.iterdir()) == []
    write_json(path, {"b": 1, "a": "ü"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "ü",\n  "b": 1\n}\n'
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ü", "b": 1}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_a_failed_write_keeps_the_old_table(tmp_path, monkeypatch) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [ROWS[records.SWEEP]], records.SWEEP)
    before = path.read_bytes()

    def run_out_of_space(_table, where: Path, **_settings) -> None:
        Path(where).write_bytes(b"PAR1")
        raise OSError("No space left on device")

    monkeypatch.setattr(records.pq, "write_table", run_out_of_space)
    with pytest.raises(OSError, match="No space"):
        write_table(path, [], records.SWEEP)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_written_files_follow_the_umask(tmp_path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640
