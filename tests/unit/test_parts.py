"""Tables written in parts equal those written at once, whatever interrupts the writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from blockpilot import parts
from blockpilot.errors import BlockPilotError
from blockpilot.parts import BUCKETS, bucket_of, count_buckets, fingerprint, write_in_parts
from blockpilot.records import EVALUATION, SWEEP, TRAJECTORIES, Schema, read_table, write_table

# Out of order, and unevenly spread: 3 of bucket 0, 1 of bucket 7, 2 of bucket f.
IDS = [f"{digit}{number:015x}" for digit, number in zip("f070f0", (9, 1, 2, 3, 4, 8), strict=True)]
SIZES = {"0": 3, "7": 1, "f": 2, "b": 0}
FILLED = ["0", "7", "f"]
# Kept for spies and for tests that replace them.
load, write_group = parts._load, pq.ParquetWriter.write_table
read_file, read_row_groups = pq.ParquetFile.read, pq.ParquetFile.read_row_groups


def sweep_rows(bucket: str = "", tau: float = 2.0) -> list[dict]:
    return [
        {
            "prompt_id": prompt_id,
            "seed": seed,
            "block_size": 8,
            "method": "live",
            "num_rounds": 2,
            "num_committed": [3, 1][: 1 + seed],
            "tau": tau,
            # Only bucket 7 lacks times altogether: its column is all null.
            "tpot_s": None if prompt_id[0] == "7" else 0.0125,
            "equals_ar": True,
        }
        for prompt_id in IDS
        for seed in (1, 0)
        if prompt_id.startswith(bucket)
    ]


def trajectory_rows(bucket: str = "", width: Callable[[str], int] = lambda _: 3) -> list[dict]:
    return [
        {
            "prompt_id": prompt_id,
            "seed": 0,
            "output_ids": [5, int(prompt_id[-1], 16)],
            "stop_reason": "length",
            "source": "ours",
            "greedy_share": 0.5,
            "prefill_logits": np.arange(width(prompt_id[0]), dtype=np.float32),
            "prefill_hidden": np.full(2, int(prompt_id[-1], 16), np.float32),
        }
        for prompt_id in IDS
        if prompt_id.startswith(bucket)
    ]


def write(paths: list[Path], compute: Callable, schema: Schema = SWEEP, **changes) -> None:
    settings = {"sizes": SIZES, "fingerprint": "a", "description": "test", **changes}
    write_in_parts(paths, schema, compute, **settings)


def assert_same(path: Path, expected: Path, schema: Schema) -> None:
    assert pq.read_schema(path).equals(pq.read_schema(expected), check_metadata=True)
    frames = [read_table(name, schema) for name in (path, expected)]
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert frames[0].duplicated(list(schema.key)).sum() == 0
    assert frames[0].sort_values(list(schema.key)).index.tolist() == list(range(len(frames[0])))


class Spy:
    """Computes sweep rows of two tables, notes the buckets, and fails at one of them."""

    def __init__(self, fail_at: str = "", tau: float = 2.0) -> None:
        self.fail_at = fail_at
        self.tau = tau
        self.buckets: list[str] = []

    def __call__(self, bucket: str) -> list[list[dict]]:
        self.buckets.append(bucket)
        if bucket == self.fail_at:
            raise KeyboardInterrupt
        return [sweep_rows(bucket, self.tau), sweep_rows(bucket, self.tau + 1)]


@pytest.fixture
def two(tmp_path) -> list[Path]:
    return [tmp_path / "out" / "a.parquet", tmp_path / "else" / "b.parquet"]


def assert_two_are_whole(two: list[Path], tau: float = 2.0) -> None:
    for index, path in enumerate(two):
        expected = path.parent.parent / "expected.parquet"
        write_table(expected, sweep_rows(tau=tau + index), SWEEP)
        assert_same(path, expected, SWEEP)
        assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", [list, iter, pd.DataFrame])
@pytest.mark.parametrize(
    ("schema", "rows"), [(SWEEP, sweep_rows), (TRAJECTORIES, trajectory_rows)], ids=["sweep", "t"]
)
def test_content_and_schema_equal_those_of_write_table(schema, rows, kind, tmp_path) -> None:
    write_table(tmp_path / "once.parquet", rows(), schema)
    path = tmp_path / "parts.parquet"
    write([path], lambda bucket: [kind(rows(bucket))], schema)
    assert_same(path, tmp_path / "once.parquet", schema)
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(i, ["prompt_id"])[0].to_pylist() for i in range(3)]
    assert [{prompt_id[0] for prompt_id in group} for group in groups] == [{"0"}, {"7"}, {"f"}]
    assert file.num_row_groups == 3
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert {found.name for found in tmp_path.iterdir()} == {"once.parquet", "parts.parquet"}


def test_several_outputs_are_computed_together(two) -> None:
    spy = Spy()
    write(two, spy)
    assert spy.buckets == FILLED
    assert_two_are_whole(two)


def test_a_bucket_is_written_before_the_next_is_computed(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    seen = []

    def compute(bucket: str) -> list[list[dict]]:
        seen.append(sorted(found.name for found in tmp_path.rglob("*.parquet")))
        return [sweep_rows(bucket)]

    write([path], compute)
    first, second = "0-0.parquet", "7-0.parquet"
    assert seen == [[], [first], [first, second]]


def test_parts_are_put_together_one_at_a_time(tmp_path, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(parts, "_load", lambda *args: calls.append("read") or load(*args))
    monkeypatch.setattr(
        pq.ParquetWriter,
        "write_table",
        lambda self, table, *args, **settings: (
            calls.append("write") or write_group(self, table, *args, **settings)
        ),
    )
    write([tmp_path / "a.parquet"], lambda bucket: [sweep_rows(bucket)])
    # First the parts themselves, then each part goes out before the next comes in.
    assert calls == ["write"] * 3 + ["read", "write"] * 3


def test_a_failed_run_resumes_with_the_missing_buckets(two, capsys) -> None:
    first = Spy(fail_at="f")
    with pytest.raises(KeyboardInterrupt):
        write(two, first)
    assert first.buckets == FILLED
    assert not any(path.exists() for path in two)
    assert "resuming" not in capsys.readouterr().err
    second = Spy()
    write(two, second)
    assert second.buckets == ["f"]
    assert "resuming: 2 of 3 parts are there\n" in capsys.readouterr().err
    assert_two_are_whole(two)


def test_a_bucket_with_a_missing_file_is_computed_again(two, monkeypatch) -> None:
    def die_between(path: Path, *args) -> None:
        if path.name == "7-1.parquet":
            # What a kill leaves behind, as it runs no clean-up: the start of a temporary file.
            (path.parent / ".7-1.parquet.x1.parquet").write_bytes(b"PAR1")
            raise KeyboardInterrupt
        write_table(path, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(parts, "write_table", die_between)
        write(two, Spy())
    folder = two[0].parent / ".a.parquet.parts"
    assert {"0-0.parquet", "0-1.parquet", "7-0.parquet"} < {path.name for path in folder.iterdir()}
    spy = Spy()
    write(two, spy)
    assert spy.buckets == ["7", "f"]
    assert_two_are_whole(two)


def test_a_kill_while_putting_together_costs_no_computing(two, monkeypatch) -> None:
    def die_at_second(path: Path, schema: Schema) -> None:
        if path.name == "7-1.parquet":
            raise KeyboardInterrupt
        return load(path, schema)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(parts, "_load", die_at_second)
        write(two, Spy())
    assert [path.exists() for path in two] == [True, False]
    assert list(two[1].parent.iterdir()) == []
    spy = Spy()
    write(two, spy)
    assert spy.buckets == []
    assert_two_are_whole(two)


@pytest.mark.parametrize("damage", ["other fingerprint", "no fingerprint"])
def test_parts_of_another_fingerprint_are_thrown_away(damage, two, capsys) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(two, Spy(fail_at="f", tau=7.0))
    if damage == "no fingerprint":
        (two[0].parent / ".a.parquet.parts" / "fingerprint").unlink()
    spy = Spy()
    write(two, spy, fingerprint="a" if damage == "no fingerprint" else "b")
    assert spy.buckets == FILLED
    assert "resuming" not in capsys.readouterr().err
    assert_two_are_whole(two)


def test_the_progress_bar_counts_prompts(two, monkeypatch) -> None:
    bars = []

    def spy_on(*args, **settings):
        bars.append(track(*args, **settings))
        return bars[-1]

    track = parts.track
    monkeypatch.setattr(parts, "track", spy_on)
    with pytest.raises(KeyboardInterrupt):
        write(two, Spy(fail_at="7"))
    assert (bars[0].initial, bars[0].n, bars[0].total, bars[0].unit) == (0, 3, 6, "prompt")
    write(two, Spy())
    assert (bars[1].initial, bars[1].n, bars[1].total, bars[1].desc) == (3, 6, 6, "test")


@pytest.mark.parametrize("output", [0, 1])
def test_rows_of_another_bucket_are_refused(output, two) -> None:
    def compute(bucket: str) -> list[list[dict]]:
        tables = [sweep_rows(bucket), sweep_rows(bucket)]
        tables[output] = sweep_rows("f" if bucket == "7" else bucket)
        return tables

    with pytest.raises(BlockPilotError, match=r"bucket 7: prompt_id is 'f0+9'; allowed: 7"):
        write(two, compute)
    assert not any(path.exists() for path in two)
    spy = Spy()
    write(two, spy)
    assert spy.buckets == ["7", "f"]


def test_vectors_of_different_lengths_are_refused(tmp_path) -> None:
    path = tmp_path / "a.parquet"

    def compute(bucket: str) -> list[list[dict]]:
        return [trajectory_rows(bucket, lambda digit: 4 if digit == "f" else 3)]

    with pytest.raises(BlockPilotError, match=r"f-0\.parquet: type of prefill_logits is .*\[4\]"):
        write([path], compute, TRAJECTORIES)
    assert not path.exists()


def test_a_damaged_part_is_named(two) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(two, Spy(fail_at="f"))
    (two[0].parent / ".a.parquet.parts" / "7-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(BlockPilotError, match=r"7-1\.parquet is not a whole Parquet file"):
        write(two, Spy())


@pytest.mark.parametrize("schema", [SWEEP, TRAJECTORIES], ids=lambda schema: schema.name)
@pytest.mark.parametrize("sizes", [{}, {"0": 3, "7": 1}], ids=["no prompts", "no rows"])
def test_a_table_without_rows_is_an_empty_file_of_the_schema(schema, sizes, tmp_path) -> None:
    write_table(tmp_path / "once.parquet", [], schema)
    write([tmp_path / "a.parquet"], lambda _: [[]], schema, sizes=sizes)
    assert_same(tmp_path / "a.parquet", tmp_path / "once.parquet", schema)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_bucket_without_rows_gets_no_row_group(tmp_path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]

    def compute(bucket: str) -> list[list[dict]]:
        return [trajectory_rows(bucket), [] if bucket == "0" else trajectory_rows(bucket)]

    write(paths, compute, TRAJECTORIES)
    assert [pq.ParquetFile(path).num_row_groups for path in paths] == [3, 2]
    rows = [row for row in trajectory_rows() if row["prompt_id"][0] != "0"]
    write_table(tmp_path / "once.parquet", rows, TRAJECTORIES)
    assert_same(paths[1], tmp_path / "once.parquet", TRAJECTORIES)


def test_what_does_not_fit_is_refused_before_computing(tmp_path) -> None:
    path, spy = tmp_path / "a.parquet", Spy()
    with pytest.raises(BlockPilotError, match="evaluation: first column of the key is 'policy'"):
        write([path], spy, EVALUATION)
    with pytest.raises(BlockPilotError, match="sizes: bucket is 'A'"):
        write([path], spy, sizes={"A": 1})
    assert spy.buckets == []
    with pytest.raises(ValueError, match="2 collections for 1 tables"):
        write([path], spy)


@pytest.fixture
def reads(monkeypatch) -> list[list[int]]:
    """Return the row groups that are decoded, call by call."""
    calls = []

    def spy(self, groups, *args, **settings):
        calls.append(list(groups))
        return read_row_groups(self, groups, *args, **settings)

    def refuse(*_args, **_settings):
        raise AssertionError("the whole file is read")

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
    monkeypatch.setattr(pq.ParquetFile, "read", refuse)
    return calls


def rows_of(bucket: str, path: Path) -> pd.DataFrame:
    """Return what write_table makes of a bucket's rows."""
    write_table(path, trajectory_rows(bucket), TRAJECTORIES)
    return pq.read_table(path).to_pandas()


def test_reading_a_bucket_decodes_only_its_row_group(tmp_path, reads) -> None:
    path = tmp_path / "a.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "read", read_file)
        write([path], lambda bucket: [trajectory_rows(bucket)], TRAJECTORIES)
    for index, bucket in enumerate(FILLED):
        frame = read_table(path, TRAJECTORIES, bucket=bucket)
        expected = rows_of(bucket, tmp_path / "expected.parquet")
        pd.testing.assert_frame_equal(frame, expected, check_exact=True)
        assert len(frame) == SIZES[bucket]
        assert reads[-1] == [index]
    frame = read_table(path, TRAJECTORIES, bucket="8")
    assert reads[-1] == []
    assert list(frame.columns) == TRAJECTORIES.names
    assert frame.empty


@pytest.mark.parametrize("case", ["one row group", "no statistics"])
def test_reading_a_bucket_filters_where_statistics_do_not_help(case, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    write_table(path, trajectory_rows(), TRAJECTORIES)
    if case == "no statistics":
        pq.write_table(pq.read_table(path), path, write_statistics=False, row_group_size=2)
    for bucket in FILLED:
        frame = read_table(path, TRAJECTORIES, bucket=bucket)
        expected = rows_of(bucket, tmp_path / "expected.parquet")
        pd.testing.assert_frame_equal(frame, expected, check_exact=True)
    assert read_table(path, TRAJECTORIES, bucket="8").empty


@pytest.mark.parametrize("columns", [["seed"], ["seed", "prompt_id"], ["output_ids", "seed"]])
def test_reading_a_bucket_gives_only_the_asked_columns(columns, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    write_table(path, trajectory_rows(), TRAJECTORIES)
    frame = read_table(path, TRAJECTORIES, columns, bucket="f")
    assert list(frame.columns) == columns
    assert len(frame) == 2


def test_reading_a_bucket_complains_like_reading_everything(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(BlockPilotError, match="does not exist"):
        read_table(path, SWEEP, bucket="0")
    write_table(path, sweep_rows(), SWEEP)
    with pytest.raises(BlockPilotError, match="schema is 'sweep'; allowed: 'trajectories'"):
        read_table(path, TRAJECTORIES, bucket="0")
    # The footer is whole; only decoding shows that a page is not.
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    with pytest.raises(BlockPilotError, match="not a whole Parquet file"):
        read_table(path, SWEEP, bucket="0")


def test_buckets() -> None:
    assert [bucket_of(f"{digit}{'0' * 15}") for digit in BUCKETS] == list("0123456789abcdef")
    for wrong in ("", "A0", "g0"):
        with pytest.raises(BlockPilotError, match=f"prompt_id is '{wrong}'"):
            bucket_of(wrong)


def test_the_fingerprint_follows_settings_and_files(tmp_path) -> None:
    folder, file = tmp_path / "weights", tmp_path / "prompts.parquet"
    (folder / "deep").mkdir(parents=True)
    for path in (folder / "b", folder / "deep" / "a", file):
        path.write_text("xy")
        os.utime(path, ns=(10, 10))
    settings = {"b": (1, 2), "a": {"d": None, "c": "ü"}}
    inputs = [folder, str(file)]
    base = fingerprint(settings, inputs)
    assert len(base) == 16
    assert set(base) <= set(BUCKETS)
    assert base == fingerprint({"a": {"c": "ü", "d": None}, "b": [1, 2]}, inputs)
    found = {base, fingerprint({**settings, "b": (2, 1)}, inputs), fingerprint(settings, [folder])}
    os.utime(file, ns=(10, 11))
    found.add(fingerprint(settings, inputs))
    (folder / "deep" / "a").write_text("xyz")
    os.utime(folder / "deep" / "a", ns=(10, 10))
    found.add(fingerprint(settings, inputs))
    (folder / "deep").rename(folder / "depth")
    found.add(fingerprint(settings, inputs))
    assert len(found) == 6
    with pytest.raises(BlockPilotError, match="missing does not exist"):
        fingerprint(settings, [tmp_path / "missing"])


def test_buckets_are_counted_by_first_digit() -> None:
    ids = pd.Series(["00aa", "0bcd", "f000"])
    assert count_buckets(ids) == {"0": 2, "f": 1}
    with pytest.raises(BlockPilotError, match="16 lower-case hex digits"):
        count_buckets(pd.Series(["xyz"]))
