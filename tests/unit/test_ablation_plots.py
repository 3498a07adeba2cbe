"""The figures of ablations and overhead: written whole, and showing what the tables say."""

from __future__ import annotations

from itertools import product

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

from blockpilot import ablation_plots
from blockpilot.ablation_plots import plot_ablation, plot_overhead
from blockpilot.errors import BlockPilotError

NAN = float("nan")
# Knob, value, default, gain in tau, speedup.
SETTINGS = [
    ("width", "256", False, -0.5, 2.0),
    ("width", "2048", True, 0.25, 2.25),
    ("width", "4096", False, 0.125, 2.5),
    ("features", "raw", True, 0.25, 2.25),
    ("features", "normalized", False, -0.25, 2.0),
    ("features", "softmax", False, -0.25, 2.0),
    ("features", "summary", False, -0.25, 2.0),
    ("features", "hidden", False, -0.25, 2.0),
]


def make_ablations(slower=0.0):
    columns = ["ablation", "value", "is_default", "tau_gain_over_best_fixed", "speedup"]
    frame = pd.DataFrame(SETTINGS, columns=columns)
    frame = frame.assign(group="average", n=141, n_timed=36, num_training_seeds=3)
    frame["speedup"] -= slower
    for name, half in (("tau_gain_over_best_fixed", 0.125), ("speedup", 0.25)):
        frame[f"{name}_low"] = frame[name] - half
        frame[f"{name}_high"] = frame[name] + half
    frame["tau_gain_seeds_low"] = frame["tau_gain_over_best_fixed"] - 0.0625
    frame["tau_gain_seeds_high"] = frame["tau_gain_over_best_fixed"] + 0.03125
    frame["speedup_best_fixed"] = 2.125 - slower
    return pd.concat([frame, frame.assign(group="code", tau_gain_over_best_fixed=9.0)])


def make_overhead():
    rows = [
        ("select (default)", "selector", 200, 0.4, 0.3, 0.5, 18.5, 0.02),
        ("select, width 256", "selector", 200, 0.05, 0.04, 0.06, 1.5, 0.003),
        ("prefill", "target", 98, 3.0, 2.0, 4.0, 10.0, NAN),
        ("round of best_fixed", "draft", 98, 7.0, 6.0, 9.0, 6.0, 0.5),
        ("decode one request, ar", "request", 36, 400.0, 200.0, 800.0, NAN, NAN),
    ]
    names = ["component", "part", "n", "median_ms", "p10_ms", "p90_ms"]
    return pd.DataFrame(rows, columns=[*names, "parameters_mb", "activations_mb"])


def draw_width(paths, decodes):
    plot_ablation(
        {d: make_ablations() for d in decodes},
        "width",
        *paths,
        title=TITLES["ablation_width"],
    )


def draw_features(paths, decodes):
    plot_ablation(
        {d: make_ablations() for d in decodes},
        "features",
        *paths,
        title=TITLES["ablation_features"],
    )


def draw_overhead(paths, decodes):
    plot_overhead(make_overhead(), *paths, title=TITLES["overhead"])


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, ablation_plots)


def vertical_lines(axes):
    """Return (x, bottom, top) of the vertical lines of two points."""
    lines = [line.get_data() for line in axes.lines if len(line.get_xdata()) == 2]
    return [(float(x[0]), float(y[0]), float(y[1])) for x, y in lines if x[0] == x[1]]


@pytest.mark.parametrize("draw", [draw_width, draw_overhead])
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize(
    ("draw", "decodes"),
    [(draw_overhead, ()), *product((draw_width, draw_features), DECODES)],
)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)
    assert len(drawn[0].legends) == 1


@pytest.mark.parametrize("name", [name for name in TITLES if name.startswith("ablation_")])
def test_titles_fit_above_one_narrow_panel(drawn, name):
    tables = {"T0": make_ablations()}
    plot_ablation(tables, "width", *NOWHERE, title=TITLES[name])
    check_layout(*drawn)


def test_gains_and_speedups_of_a_knob(drawn):
    plot_ablation({"T0": make_ablations()}, "width", *NOWHERE, title="Width")
    upper, lower = drawn[0].axes
    names = [name.get_text() for name in upper.get_xticklabels()]
    assert names == ["256", "2048\n(default)", "4096"]
    weights = [name.get_fontweight() for name in lower.get_xticklabels()]
    assert weights == ["normal", "bold", "normal"]
    points = next(line for line in upper.lines if line.get_label().startswith("value"))
    assert points.get_ydata().tolist() == [-0.5, 0.25, 0.125]
    assert vertical_lines(upper) == [
        (0, -0.625, -0.375),
        (1, 0.125, 0.375),
        (2, 0, 0.25),
        (0.22, -0.5625, -0.46875),
        (1.22, 0.1875, 0.28125),
        (2.22, 0.0625, 0.15625),
    ]
    assert upper.lines[0].get_label() == "best_fixed" and set(upper.lines[0].get_ydata()) == {0}
    assert vertical_lines(lower) == [(0, 1.75, 2.25), (1, 2, 2.5), (2, 2.25, 2.75)]
    (reference,) = lower.collections
    assert [part[:, 1].tolist() for part in reference.get_segments()] == [[2.125, 2.125]] * 3
    assert upper.get_title() == "decode T0, average\nn = 141, 3 training seeds"
    assert (lower.get_title(), lower.get_xlabel()) == ("n = 36 timed", "width")
    assert "tokens per round" in upper.get_ylabel() and "ratio" in lower.get_ylabel()
    seeds = "smallest to largest of the training seeds"
    assert labels_of(drawn[0]) == ["best_fixed", "value with its 95 % interval", seeds]


def test_gains_share_their_axis_and_speedups_their_span(drawn):
    higher = make_ablations(slower=1.0)
    gain = "tau_gain_over_best_fixed"
    higher[[gain, f"{gain}_low", f"{gain}_high"]] += 1
    plot_ablation({"T0": make_ablations(), "T1": higher}, "width", *NOWHERE, title="Width")
    above, beside, below, under = drawn[0].axes
    assert above.get_ylim() == beside.get_ylim()
    assert above.get_ylim()[0] < -0.625 and above.get_ylim()[1] > 1.375
    spans = [np.diff(axes.get_ylim())[0] for axes in (below, under)]
    assert spans[0] == pytest.approx(spans[1])
    assert below.get_ylim()[0] - under.get_ylim()[0] == pytest.approx(1)
    assert below.get_ylim()[0] < 1.75 and below.get_ylim()[1] > 2.75


def test_what_was_not_timed_says_so(drawn):
    speedups = ["speedup", "speedup_low", "speedup_high"]
    some, none = make_ablations(), make_ablations()
    some.loc[some["value"] == "4096", speedups] = NAN
    none[[*speedups, "speedup_best_fixed"]] = NAN
    plot_ablation({"T0": some, "T1": none.assign(n_timed=0)}, "width", *NOWHERE, title="Width")
    partly, untimed = drawn[0].axes[2:]
    assert [(text.get_text(), text.get_position()[0]) for text in partly.texts] == [
        ("not timed", 2)
    ]
    assert [text.get_text() for text in untimed.texts] == ["not timed"]
    assert untimed.get_title() == "n = 0 timed" and not untimed.get_yticks().size


def test_variants_with_other_settings_line_up(drawn):
    fewer = make_ablations().query("value != '256'")
    plot_ablation({"T0": make_ablations(), "T1": fewer}, "width", *NOWHERE, title="Width")
    points = next(line for line in drawn[0].axes[1].lines if line.get_label().startswith("value"))
    assert points.get_data()[0].tolist() == [1, 2]
    assert points.get_data()[1].tolist() == [0.25, 0.125]


def test_numbers_read_from_a_file_are_settings(drawn):
    table = make_ablations().query("ablation == 'width'").astype({"value": int})
    table["num_training_seeds"] = 1
    plot_ablation({"T0": table}, "width", *NOWHERE, title="Width", group="code")
    upper = drawn[0].axes[0]
    assert upper.get_xticklabels()[0].get_text() == "256"
    assert upper.get_title() == "decode T0, code\nn = 141, 1 training seed"


def test_a_knob_without_rows_is_refused():
    with pytest.raises(BlockPilotError, match=r"'depth'.*\['features', 'width'\]"):
        plot_ablation({"T0": make_ablations()}, "depth", *NOWHERE, title="Depth")


def test_overhead_is_drawn_from_the_top_down(drawn):
    plot_overhead(make_overhead(), *NOWHERE, title="Overhead")
    times, sizes = drawn[0].axes
    assert [bar.get_width() for bar in times.patches] == [0.4, 0.05, 3, 7, 400]
    assert [list(line.get_xdata()) for line in times.lines][:2] == [[0.3, 0.5], [0.04, 0.06]]
    names = [name.get_text() for name in times.get_yticklabels()]
    assert names[:2] == ["select (default) (n = 200)", "select, width 256 (n = 200)"]
    assert [text.get_text().strip() for text in times.texts][-1] == "400 ms"
    assert times.get_ylim()[0] > times.get_ylim()[1]
    assert times.get_xscale() == sizes.get_xscale() == "log"
    assert times.get_xlim()[0] == pytest.approx(0.01)
    assert "logarithmic" in times.get_xlabel() and sizes.get_xlabel().startswith("MB")
    # A part with one row is named by itself; the target's activations are not known.
    names = [name.get_text() for name in sizes.get_yticklabels()]
    assert names == ["select (default)", "select, width 256", "target", "draft"]
    parameters = [bar for bar in sizes.patches if not bar.get_hatch()]
    activations = [bar for bar in sizes.patches if bar.get_hatch()]
    assert [bar.get_width() for bar in parameters] == [18.5, 1.5, 10, 6]
    assert [bar.get_width() for bar in activations] == [0.02, 0.003, 0.5]
    colours = [bar.get_facecolor() for bar in times.patches]
    assert len(set(colours)) == 4 and colours[0] == parameters[0].get_facecolor()
    assert labels_of(drawn[0]) == [
        "selector", "draft", "target", "request", "parameters", "activations"
    ]  # fmt: skip
