"""The figures of single requests: written whole, reproducibly, and showing what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figure_cases import (
    DECODES,
    NOWHERE,
    TITLES,
    catch_figures,
    check_layout,
    check_written_twice,
    labels_of,
    lines_of,
)

from blockpilot import response_plots
from blockpilot.plots import COLOURS, MARKERS
from blockpilot.response_plots import plot_agreement, plot_lengths
from blockpilot.statistics import wilson_interval

LIMIT_LABEL, BAND_LABEL = "limit: 9 tokens", "95 % at each length (Wilson)"


def make_lengths():
    """Return 4 responses of sums, one of them cut off after 9 tokens, and one of code."""
    rows = [
        ("arithmetic", 2, "stop", 2),
        ("arithmetic", 5, "stop", 1),
        ("arithmetic", 9, "length", 1),
        ("code", 7, "stop", 1),
    ]
    return pd.DataFrame(rows, columns=["group", "output_tokens", "stop_reason", "count"])


def make_pairs(differs=False):
    """Return pairs of two groups, one of them without a round."""
    frame = pd.DataFrame(
        {
            "group": ["arithmetic"] * 3 + ["code"] * 2,
            "tau_live": [2.0, 3.0, np.nan, 4.0, 7.0],
            "tau_replay": [2.0, 3.0, np.nan, 4.0, 7.0],
            "is_equal": True,
        }
    )
    if differs:
        frame.loc[1, ["tau_replay", "is_equal"]] = [2.5, False]
    return frame.astype({"is_equal": bool})


def draw_lengths(paths, decodes):
    plot_lengths({d: make_lengths() for d in decodes}, *paths, title=TITLES["response_lengths"])


def draw_agreement(paths, decodes):
    tables = {d: make_pairs(differs=d == "T1") for d in decodes}
    plot_agreement(tables, *paths, title=TITLES["replay_agreement"])


ALL = [draw_lengths, draw_agreement]


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, response_plots)


@pytest.mark.parametrize("draw", ALL)
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("decodes", DECODES)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)


def test_lengths_are_cumulated_by_hand(drawn):
    plot_lengths({"T0": make_lengths()}, *NOWHERE, title="Lengths of responses")
    (axes,) = drawn[0].axes
    lines = lines_of(axes)
    sums = lines["arithmetic (n = 4, 25.0 % cut off)"]
    code = lines["code (n = 1, none cut off)"]
    # Up to 5 tokens three of four have ended; the fourth is cut off at 9.
    np.testing.assert_array_equal(sums.get_xydata(), [[2, 0], [2, 50], [5, 75], [9, 75]])
    np.testing.assert_array_equal(code.get_xydata(), [[7, 0], [7, 100], [7, 100]])
    assert sums.get_drawstyle() == code.get_drawstyle() == "steps-post"
    assert (sums.get_color(), sums.get_marker()) == (COLOURS[0], MARKERS[0])
    assert (code.get_color(), code.get_marker()) == (COLOURS[1], MARKERS[1])
    (mark,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    np.testing.assert_array_equal(mark.get_xydata(), [[9, 75]])
    assert list(lines[LIMIT_LABEL].get_xdata()) == [9, 9]
    assert axes.get_title() == "decode T0, n = 5"
    assert axes.get_xlabel() == "response (tokens)"
    assert axes.get_ylabel() == "responses that have ended (%)"
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > 9
    labels = [sums.get_label(), code.get_label(), LIMIT_LABEL, BAND_LABEL]
    assert labels_of(drawn[0]) == labels


def test_bands_are_intervals_of_the_share(drawn):
    plot_lengths({"T0": make_lengths()}, *NOWHERE, title="Lengths of responses")
    band = drawn[0].axes[0].collections[0].get_paths()[0].vertices
    low, high = wilson_interval(np.array([0.5, 0.75]), 4)
    for share in (*low, *high):
        assert np.isclose(band[:, 1], 100 * share).any()
    assert band[:, 0].min() == 2 and band[:, 0].max() == 9


def test_without_a_cut_off_response_no_limit_is_drawn(drawn):
    lengths = make_lengths()
    plot_lengths({"T0": lengths[lengths["stop_reason"] == "stop"]}, *NOWHERE, title="Lengths")
    labels = ["arithmetic (n = 3, none cut off)", "code (n = 1, none cut off)", BAND_LABEL]
    assert labels_of(drawn[0]) == labels


def test_a_group_that_is_cut_off_as_a_whole_stays_at_zero(drawn):
    lengths = make_lengths().assign(stop_reason="length")
    plot_lengths({"T0": lengths[lengths["group"] == "arithmetic"]}, *NOWHERE, title="Lengths")
    (axes,) = drawn[0].axes
    line = axes.lines[0]
    np.testing.assert_array_equal(line.get_xydata(), [[2, 0], [9, 0]])
    assert line.get_label() == "arithmetic (n = 4, 100.0 % cut off)"
    assert "limit: at most 9 tokens" in labels_of(drawn[0])


def test_a_group_keeps_its_style_where_others_are_missing(drawn):
    lengths = make_lengths()
    tables = {"T0": lengths, "T1": lengths[lengths["group"] == "code"]}
    plot_lengths(tables, *NOWHERE, title="Lengths")
    assert drawn[0].axes[1].lines[0].get_color() == COLOURS[1]


def test_agreement_has_a_point_per_pair(drawn):
    plot_agreement({"T0": make_pairs(), "T1": make_pairs(differs=True)}, *NOWHERE, title="Labels")
    left, right = drawn[0].axes
    assert left.get_title() == "decode T0\n5 of 5 pairs have the same rounds"
    assert right.get_title() == "decode T1\n4 of 5 pairs have the same rounds"
    points = {group.get_label(): group.get_offsets() for group in right.collections}
    assert list(points) == ["arithmetic", "code", "different rounds"]
    np.testing.assert_array_equal(points["arithmetic"].compressed(), [2, 2, 3, 2.5])
    np.testing.assert_array_equal(points["code"].compressed(), [4, 4, 7, 7])
    np.testing.assert_array_equal(points["different rounds"], [[3, 2.5]])
    assert [group.get_label() for group in left.collections] == ["arithmetic", "code"]
    paths = [group.get_paths()[0].vertices.shape for group in left.collections]
    assert paths[0] != paths[1]  # other markers
    assert left.get_xlim() == left.get_ylim() and left.get_xlim()[0] == 0
    assert left.get_xlim()[1] > 7 and left.get_aspect() == 1
    assert left.get_xlabel() == "tau, decoded live (tokens per round)"
    assert left.get_ylabel() == "tau, replayed (tokens per round)"
    labels = ["the same tau", "arithmetic", "code", "different rounds"]
    assert labels_of(drawn[0]) == labels
