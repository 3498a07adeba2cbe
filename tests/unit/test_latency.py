"""Latency tables: interpolation, extrapolation, hand-written values, and what is refused."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.latency import LatencyModel, hand_written_table

SETTINGS = {"draft_ms": {"2": 2.5, "16": 3.9}, "verify_ms": {1: 5.0, 16: 9.5}, "ar_ms": 4.8}


def row(component: str, block_size: int, context_tokens: int, median_s: float, **others) -> dict:
    """Return a measured row; its percentiles differ from the median."""
    return {
        "component": component,
        "block_size": block_size,
        "context_tokens": context_tokens,
        "batch_size": 1,
        "dtype": "bfloat16",
        "median_s": median_s,
        "p10_s": median_s * 0.5,
        "p90_s": median_s * 3,
        "n": 20,
        **others,
    }


def measured_rows() -> list[dict]:
    """Return a table whose verify grid is ragged: size 8 was measured at context 100 alone."""
    return [
        row("verify", 4, 100, 4.0),
        row("verify", 1, 100, 1.0),
        row("verify", 8, 100, 12.0),
        row("verify", 1, 300, 3.0),
        row("verify", 4, 300, 6.0),
        row("draft", 2, 100, 0.5),
        row("draft", 6, 100, 1.5),
        row("ar", 1, 100, 1.0),
        row("ar", 1, 300, 2.0),
    ]


def model_of(rows: list[dict], **others) -> LatencyModel:
    return LatencyModel.from_table(pd.DataFrame(rows), **others)


@pytest.mark.parametrize(
    ("block_size", "context_tokens", "seconds"),
    [
        (1, 100, 1.0),
        (4, 100, 4.0),
        (8, 100, 12.0),
        (4, 300, 6.0),
        (2, 100, 2.0),  # between sizes
        (6, 100, 8.0),
        (10, 100, 16.0),  # beyond the largest: the slope of the last two sizes
        (4, 200, 5.0),  # between contexts
        (2, 150, 2.5),  # between both
        (2, 300, 4.0),
        (6, 300, 8.0),  # this context has no size 8: its own last two sizes go on
        (6, 200, 8.0),
        (8, 200, 11.0),
        (4, 0, 4.0),  # clamped in context
        (4, 99, 4.0),
        (4, 301, 6.0),
        (4, 5000, 6.0),
        (10, 0, 16.0),
    ],
)
def test_times_are_linear_in_size_then_in_context(block_size, context_tokens, seconds) -> None:
    model = model_of(measured_rows())
    for _ in range(2):  # the second answer comes from what the first one kept
        assert model.verify_s(block_size, context_tokens) == pytest.approx(seconds, rel=1e-12)


def test_every_measured_point_comes_back_exactly() -> None:
    rows = [
        row(component, size, context, (size**0.7 + context / 7) / 300)
        for component in ("draft", "verify")
        for size in (2, 3, 7, 16)
        for context in (10, 33, 512)
    ]
    model = model_of(rows[::-1])
    for point in rows:
        time_s = model.draft_s if point["component"] == "draft" else model.verify_s
        assert time_s(point["block_size"], point["context_tokens"]) == point["median_s"]


def test_below_the_smallest_size_times_are_constant() -> None:
    model = model_of([row("draft", 2, 0, 1.0), row("verify", 4, 0, 4.0), row("verify", 8, 0, 5.0)])
    assert [model.verify_s(size, 0) for size in (1, 3, 4)] == [4.0, 4.0, 4.0]


def test_a_single_size_is_constant() -> None:
    model = model_of([row("draft", 8, 0, 1.0), row("verify", 8, 0, 2.0)])
    assert [model.draft_s(size, 77) for size in (2, 8, 16)] == [1.0, 1.0, 1.0]


def test_a_single_context_is_constant_in_context() -> None:
    model = model_of(measured_rows())
    assert [model.draft_s(4, context) for context in (0, 100, 9999)] == [1.0, 1.0, 1.0]


def test_a_round_drafts_and_verifies() -> None:
    model = model_of(measured_rows())
    assert model.round_s(4, 4, 100) == 1.0 + 4.0
    assert model.round_s(6, 4, 200) == 1.5 + 5.0
    assert model.round_s(8, 1, 300) == 2.0 + 3.0


def test_a_draft_of_size_1_costs_nothing() -> None:
    model = model_of([*measured_rows(), row("draft", 1, 100, 0.4)])
    assert model.draft_s(1, 100) == 0.0
    assert model.round_s(1, 1, 300) == 3.0
    assert model.draft_s(2, 100) == 0.5


def test_autoregressive_time() -> None:
    model = model_of(measured_rows())
    assert [model.ar_s(context) for context in (0, 150, 400)] == [1.0, 1.25, 2.0]


def test_the_batch_size_selects_the_rows() -> None:
    larger = [
        {**point, "batch_size": 8, "median_s": point["median_s"] * 2} for point in measured_rows()
    ]
    model = model_of(measured_rows() + larger, batch_size=8)
    assert model.round_s(6, 4, 300) == 3.0 + 12.0
    assert model_of(measured_rows() + larger).round_s(6, 4, 300) == 1.5 + 6.0


def test_a_batch_size_that_was_not_measured_is_refused() -> None:
    rows = [*measured_rows(), row("draft", 2, 100, 1.0, batch_size=8)]
    with pytest.raises(BlockPilotError, match=r"batch_size .* is 4; allowed: 1, 8\. "):
        model_of(rows, batch_size=4)
    with pytest.raises(BlockPilotError, match=r"batch_size .* is 1; allowed: none\. "):
        LatencyModel.from_table(pd.DataFrame(rows).iloc[:0])


@pytest.mark.parametrize("component", ["draft", "verify"])
def test_draft_and_verify_are_needed(component) -> None:
    rows = [point for point in measured_rows() if point["component"] != component]
    match = rf"components of the latency table is \['ar', .*allowed: .*{component}\. Measure"
    with pytest.raises(BlockPilotError, match=match):
        model_of(rows)
    rows.append(row(component, 2, 100, 1.0, batch_size=8))  # of no use at batch size 1
    with pytest.raises(BlockPilotError, match=match):
        model_of(rows)


def test_autoregressive_time_is_needed_only_where_it_is_asked_for() -> None:
    model = model_of([point for point in measured_rows() if point["component"] != "ar"])
    with pytest.raises(
        BlockPilotError, match=r"\['draft', 'verify'\]; allowed: lists that name ar"
    ):
        model.ar_s(100)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("component", ["draft", "verify", "ar", "select"])
def test_impossible_times_are_refused(component, seconds) -> None:
    rows = [*measured_rows(), row(component, 16, 200, seconds)]
    match = rf"median_s of {component} \(block size 16, context 200\) is {seconds}; allowed: finite"
    with pytest.raises(BlockPilotError, match=match):
        model_of(rows)


def test_an_impossible_time_of_another_batch_size_does_no_harm() -> None:
    model = model_of([*measured_rows(), row("draft", 2, 100, math.nan, batch_size=8)])
    assert model.draft_s(2, 100) == 0.5


def test_a_point_that_occurs_twice_is_refused() -> None:
    rows = [*measured_rows(), row("verify", 4, 300, 7.0, dtype="float32")]
    with pytest.raises(BlockPilotError, match=r"verify \(block size 4, context 300\).*one dtype"):
        model_of(rows)


def test_a_line_that_falls_to_zero_is_refused() -> None:
    model = model_of([row("draft", 2, 0, 3.0), row("draft", 4, 0, 2.0), row("verify", 1, 0, 1.0)])
    assert model.draft_s(6, 0) == 1.0
    with pytest.raises(
        BlockPilotError, match=r"draft time .*block size 8 is 0\.0; allowed: .*above 0"
    ):
        model.draft_s(8, 0)


def test_hand_written_values_become_rows() -> None:
    rows = hand_written_table(SETTINGS, "bfloat16")
    found = {(point["component"], point["block_size"]): point["median_s"] for point in rows}
    expected = {
        ("draft", 2): 0.0025,
        ("draft", 16): 0.0039,
        ("verify", 1): 0.005,
        ("verify", 16): 0.0095,
        ("ar", 1): 0.0048,
    }
    assert found == pytest.approx(expected)
    assert len(rows) == len(expected)
    assert {type(point["block_size"]) for point in rows} == {int}
    for point in rows:
        assert list(point) == list(row("draft", 2, 0, 1.0))
        assert point["p10_s"] == point["p90_s"] == point["median_s"]
        constant = {"context_tokens": 0, "batch_size": 1, "dtype": "bfloat16", "n": 0}
        assert {key: point[key] for key in constant} == constant


def test_hand_written_values_make_a_model() -> None:
    model = model_of(hand_written_table(SETTINGS, "float32"))
    assert model.round_s(9, 6, 1234) == pytest.approx(0.0032 + 0.0065)
    assert model.round_s(30, 1, 0) == pytest.approx(0.0053 + 0.005)
    assert model.ar_s(55) == pytest.approx(0.0048)


def test_hand_written_autoregressive_time_is_optional() -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "ar_ms"}
    components = {point["component"] for point in hand_written_table(settings, "float32")}
    assert components == {"draft", "verify"}


@pytest.mark.parametrize(
    "settings",
    [
        {"draft_ms": {2: 1.0}},
        {**SETTINGS, "drafts_ms": {2: 1.0}},
        {**SETTINGS, "select_ms": 1.0},
        {},
    ],
)
def test_unknown_or_missing_keys_are_refused(settings) -> None:
    with pytest.raises(BlockPilotError, match=r"keys of .* allowed: draft_ms, verify_ms and opt"):
        hand_written_table(settings, "float32")


@pytest.mark.parametrize("key", ["two", "2.0", 2.5, 0, "0", -4, ""])
def test_block_sizes_are_positive_integers(key) -> None:
    with pytest.raises(BlockPilotError, match=f"of verify_ms is {key!r}; allowed: integers >= 1"):
        hand_written_table({**SETTINGS, "verify_ms": {key: 1.0}}, "float32")


def test_a_block_size_written_twice_is_refused_by_the_model() -> None:
    rows = hand_written_table({**SETTINGS, "verify_ms": {2: 1.0, "2": 1.0}}, "float32")
    with pytest.raises(BlockPilotError, match=r"rows of verify \(block size 2, context 0\)"):
        model_of(rows)
