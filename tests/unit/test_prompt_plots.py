"""The figures of best sizes: written whole, reproducibly, and showing what the tables say."""

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
)

from blockpilot import prompt_plots
from blockpilot.prompt_plots import plot_best_sizes, plot_tau_heatmap
from blockpilot.statistics import wilson_interval

B = 8
SIZES = [6, 7, 8, 9, 10, 16]
PLACES = [0, 1, 2, 3, 4, 5.6]  # 11 to 15 were not swept
GROUPS = ["average", "arithmetic", "code", "human_eval"]


def make_best_sizes(groups=GROUPS):
    """Return counts of 40 requests per group: ties at 7, none at 6."""
    counts, ties = [0, 4, 20, 12, 3, 1], [0, 4, 5, 0, 0, 0]
    parts = []
    for group in groups:
        for among, size in (("swept", len(SIZES)), ("candidates", 5)):
            share = np.array(counts[:size]) / 40
            low, high = wilson_interval(share, 40)
            columns = {"group": group, "among": among, "block_size": SIZES[:size]}
            columns |= {"count": counts[:size], "n_ties": ties[:size]}
            columns |= {"share": share, "share_low": low, "share_high": high}
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def make_taus(counts=None):
    """Return taus of made-up requests; the counts are per group."""
    counts = {"arithmetic": 12, "code": 5, "human_eval": 1} if counts is None else counts
    rows = [
        {
            "group": group,
            "prompt_id": f"{group}-{i:02}",
            "seed": 0,
            "block_size": size,
            "tau": 1 + 0.1 * i + (0 if group == "human_eval" else 3) / (1 + abs(size - 7 - i % 3)),
        }
        for group, count in counts.items()
        for i in range(count)
        for size in SIZES
    ]
    return pd.DataFrame(rows)


def draw_best_sizes(paths, decodes):
    plot_best_sizes(
        {d: make_best_sizes() for d in decodes},
        B,
        *paths,
        title=TITLES["best_block_size_by_domain"],
    )


def draw_two_groups(paths, decodes):
    tables = {d: make_best_sizes(["average", "prose"]) for d in decodes}
    plot_best_sizes(tables, B, *paths, title=TITLES["best_block_size_by_domain"])


def draw_heatmap(paths, decodes):
    plot_tau_heatmap({d: make_taus() for d in decodes}, B, *paths, title=TITLES["tau_heatmap"])


def draw_large_heatmap(paths, decodes):
    taus = make_taus({"arithmetic": 400, "code": 1})
    plot_tau_heatmap({d: taus for d in decodes}, B, *paths, title=TITLES["tau_heatmap"])


ALL = [draw_best_sizes, draw_two_groups, draw_heatmap, draw_large_heatmap]


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, prompt_plots)


def panels_of(figure):
    return [axes for axes in figure.axes if axes.get_title()]


def dots_of(axes):
    """Return the marked columns from the top down, and which marks are white."""
    dots = [(y, x, line.get_color()) for line in axes.lines for x, y in line.get_xydata()]
    return [x for _, x, _ in sorted(dots)], [colour == "white" for *_, colour in sorted(dots)]


@pytest.mark.parametrize("draw", [draw_best_sizes, draw_heatmap])
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("decodes", DECODES)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)
    assert len(drawn[0].legends) == 1 and drawn[0].get_figheight() < 13


def test_best_sizes_stack_ties_on_what_is_clear(drawn):
    plot_best_sizes({"T0": make_best_sizes(["code"])}, B, *NOWHERE, title="Best sizes")
    (axes,) = panels_of(drawn[0])
    filled, hollow = axes.containers
    heights = [[np.nan_to_num(bar.get_height()) for bar in bars] for bars in (filled, hollow)]
    np.testing.assert_allclose(heights[0], [0, 0, 37.5, 30, 7.5, 2.5])
    np.testing.assert_allclose(heights[1], [0, 10, 12.5, 0, 0, 0])
    assert hollow[2].get_y() == pytest.approx(37.5)
    assert hollow[0].get_hatch() and not filled[0].get_hatch()
    middles = [bar.get_x() + bar.get_width() / 2 for bar in filled]
    np.testing.assert_allclose(middles, PLACES)
    (lines,) = [c for c in axes.collections if c.get_label() == "95 % interval (Wilson)"]
    rows = make_best_sizes(["code"]).query("among == 'swept'")
    for segment, place, row in zip(lines.get_segments(), PLACES, rows.itertuples(), strict=True):
        expected = [[place, 100 * row.share_low], [place, 100 * row.share_high]]
        np.testing.assert_allclose(segment, expected)
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 100 * rows["share_high"].max()


def test_best_sizes_mark_candidates_and_sizes_that_were_not_swept(drawn):
    plot_best_sizes({"T0": make_best_sizes(["code"])}, B, *NOWHERE, title="Best sizes")
    (axes,) = panels_of(drawn[0])
    (band,) = [p for p in axes.patches if p.get_label() == "candidates 6 to 10"]
    ends = band.get_extents().transformed(axes.transData.inverted())
    assert (ends.x0, ends.x1) == pytest.approx((-0.5, 4.5))
    trained = [line for line in axes.lines if line.get_label() == "trained block size B = 8"]
    assert [list(line.get_xdata()) for line in trained] == [[2, 2]]
    assert axes.get_xticks() == pytest.approx(PLACES)
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == ["6", "7", "8", "9", "10", "16"]
    assert axes.get_xticks(minor=True) == pytest.approx([4.8])
    assert axes.get_xlabel() == "best block size B* (tokens)"
    assert drawn[0].get_supylabel() == "share of requests (%)"
    assert set(labels_of(drawn[0])) == {
        "candidates 6 to 10",
        "trained block size B = 8",
        "95 % interval (Wilson)",
        "one best size",
        "ties, counted at the smallest",
    }


def test_a_group_that_a_variant_lacks_has_an_empty_panel(drawn):
    tables = {"T0": make_best_sizes(["average", "code"]), "T1": make_best_sizes(["average"])}
    plot_best_sizes(tables, B, *NOWHERE, title="Best sizes")
    titles = ["T0, average, n = 40", "T0, code, n = 40", "T1, average, n = 40", "T1, code, n = 0"]
    assert [axes.get_title() for axes in panels_of(drawn[0])] == titles
    taus = {"T0": make_taus({"arithmetic": 2, "code": 3}), "T1": make_taus({"arithmetic": 2})}
    plot_tau_heatmap(taus, B, *NOWHERE, title="Every prompt")
    panels = panels_of(drawn[1])
    titles = [
        "T0, arithmetic, n = 2",
        "T1, arithmetic, n = 2",
        "T0, code, n = 3",
        "T1, code, n = 0",
    ]
    assert [axes.get_title() for axes in panels] == titles
    assert [len(axes.images) for axes in panels] == [2, 2, 2, 0]


def test_heatmap_is_sorted_by_best_size_and_then_by_tau(drawn):
    taus = {"a": [1, 2, 3, 3, 1, 1], "b": [1, 5, 4, 2, 2, 2], "c": [1, 6, 4, 2, 2, 2]}
    taus |= {"d": [1, 1, 1, 1, 1, 9]}
    rows = [
        {"group": "code", "prompt_id": name, "seed": 0, "block_size": size, "tau": tau}
        for name, values in taus.items()
        for size, tau in zip(SIZES, values, strict=True)
    ]
    plot_tau_heatmap({"T0": pd.DataFrame(rows)}, B, *NOWHERE, title="Every prompt")
    (axes,) = panels_of(drawn[0])
    left, right = axes.images
    order = [taus[name] for name in "cbad"]
    np.testing.assert_array_equal(left.get_array(), [values[:5] for values in order])
    np.testing.assert_array_equal(right.get_array(), [values[5:] for values in order])
    assert left.get_extent() == pytest.approx([-0.5, 4.5, 1, 0])
    assert right.get_extent() == pytest.approx([5.1, 6.1, 1, 0])
    # The tie of "a" is marked at the smaller size; 9 is the largest tau, 6 at 5/8 of the scale.
    places, is_white = dots_of(axes)
    assert places == [1, 1, 2, 5.6]
    assert is_white == [False, True, True, False]
    assert axes.get_ylim() == (1, 0)


def test_heatmaps_share_one_scale_and_name_the_trained_size(drawn):
    draw_heatmap(NOWHERE, ("T0", "T1"))
    (figure,) = drawn
    panels = panels_of(figure)
    limits = {image.get_clim() for axes in panels for image in axes.images}
    assert limits == {(1, make_taus()["tau"].max())}
    (colour_bar,) = [axes for axes in figure.axes if axes not in panels]
    assert colour_bar.get_ylabel() == "tau (committed tokens per round)"
    names = [text.get_text() for text in panels[-1].get_xticklabels()]
    assert names == ["6", "7", "8\n= B", "9", "10", "16"]
    assert panels[-1].get_xlabel() == "block size b (tokens)"


def test_a_group_of_many_prompts_is_higher_than_a_small_one(drawn):
    taus = make_taus({"arithmetic": 100, "code": 50, "human_eval": 1})
    plot_tau_heatmap({"T0": taus}, B, *NOWHERE, title="Every prompt")
    heights = [axes.get_position().height for axes in panels_of(drawn[0])]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert heights[2] == pytest.approx(heights[0] * 0.7 / 3.4, rel=0.01)
