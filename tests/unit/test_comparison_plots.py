"""The figures of comparisons: written whole, reproducibly, and showing what the tables say."""

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

from blockpilot import comparison_plots, cost_plots
from blockpilot.comparison_plots import plot_draft_verify, plot_findings, plot_schemes
from blockpilot.cost_plots import plot_bounds, plot_cost

B = 8


def with_interval(frame, name, values, half=0.1):
    values = np.asarray(values, dtype=float)
    return frame.assign(
        **{name: values, f"{name}_low": values - half, f"{name}_high": values + half}
    )


def make_draft_verify(decode="T0"):
    b = np.arange(1, 2 * B + 1)
    lower = 0.0 if decode == "T0" else 0.6
    same = 1 + (4.6 - lower) * (1 - np.exp(-(b - 1) / 4)) - 0.09 * np.clip(b - B, 0, None)
    frame = pd.DataFrame({"group": "average", "block_size": b, "n": 98})
    frame = with_interval(frame, "tau_same", same)
    trained = np.where(b <= B, same + 0.3 * np.sin(np.pi * (b - 1) / (B - 1)), np.nan)
    frame = with_interval(frame, "tau_trained", trained)
    frame = with_interval(frame, "tau_double", same - 0.04 * (2 * B - b))
    other = frame.assign(group="code", n=29, tau_same=99.0)
    return pd.concat([frame, other], ignore_index=True)


def make_distribution(decode="T0"):
    b = np.arange(1, 2 * B + 1)
    count = np.round(120 * np.exp(-((b - 8.5) ** 2) / 6)).astype(int) + (b == 16) * 9
    return pd.DataFrame(
        {
            "group": "average",
            "block_size": b,
            "count": count,
            "share": count / count.sum(),
            "n_ties": count // 5,
        }
    )


def make_findings(decode="T0"):
    rows = make_distribution(decode)
    total = int(rows["count"].sum())
    frame = pd.DataFrame({"group": ["average"], "n": total, "n_ties": int(rows["n_ties"].sum())})
    for k in (1, 2, 3):
        near = (rows["block_size"] - B).abs() <= k
        frame = with_interval(frame, f"share_within_{k}", [rows.loc[near, "share"].sum()], 0.03)
    return frame


def make_schemes(decode="T1", schemes=("match", "coupled", "rejection")):
    b = np.arange(1, 2 * B + 1)
    parts = []
    for index, group in enumerate(["average", "arithmetic", "code", "prose", "human_eval"]):
        for place, scheme in enumerate(schemes):
            height = (3.4 - 0.3 * index) * (1 + 0.15 * place)
            tau = 1 + height * (1 - np.exp(-(b - 1) / 4)) - 0.05 * np.clip(b - B, 0, None)
            part = pd.DataFrame(
                {"group": group, "scheme": scheme, "block_size": b, "n": 98 - index}
            )
            parts.append(with_interval(part, "tau_mean", tau))
    return pd.concat(parts, ignore_index=True)


def make_cost(decode="T0", sizes=range(1, 17)):
    rows = [("live", f"b = {b}", 40.0 / (1 + 0.3 * min(b, 8))) for b in sizes]
    rows.append(("live", "total", sum(row[2] for row in rows)))
    replay = [("trajectories", 3.1), ("context", 0.4), ("blocks", 6.2)]
    rows += [("replay", *part) for part in replay]
    rows.append(("replay", "total", sum(ms for _, ms in replay)))
    frame = pd.DataFrame(rows, columns=["method", "part", "label_ms"])
    frame = frame.assign(num_requests=24, num_block_sizes=len(sizes))
    replayed = frame["label_ms"].iloc[-1]
    return frame.assign(
        speedup_of_replay=(frame["label_ms"] / replayed).where(frame["part"] == "total")
    )


def make_bounds(decode="T0", objectives=("rounds", "time")):
    gains = {"best_fixed": 0, "oracle": 0.07, "clairvoyant": 0.41, "clairvoyant_verify": 0.48}
    rows = [
        {"group": "average", "objective": o, "policy": p, "n": 98, "gain_over_best_fixed": g * s}
        for o, s in zip(objectives, (1.0, 0.8), strict=False)
        for p, g in gains.items()
    ]
    frame = pd.DataFrame(rows)
    return with_interval(frame, "gain_over_best_fixed", frame["gain_over_best_fixed"], 0.02)


def draw_draft_verify(paths, decodes):
    plot_draft_verify(
        {d: make_draft_verify(d) for d in decodes}, B, *paths, title=TITLES["draft_verify"]
    )


def draw_findings(paths, decodes):
    spread, found = ({d: make(d) for d in decodes} for make in (make_distribution, make_findings))
    plot_findings(spread, found, B, *paths, title=TITLES["findings"])


def draw_schemes(paths, decodes):
    plot_schemes({d: make_schemes(d) for d in decodes}, B, *paths, title=TITLES["schemes"])


def draw_cost(paths, decodes):
    tables = {
        d: make_cost(d).replace({"part": {"context": "features and context"}}) for d in decodes
    }
    plot_cost(tables, *paths, title=TITLES["replay_cost"])


def draw_bounds(paths, decodes):
    plot_bounds({d: make_bounds(d) for d in decodes}, *paths, title=TITLES["bounds"])


ALL = [draw_draft_verify, draw_findings, draw_schemes, draw_cost, draw_bounds]


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, comparison_plots, cost_plots)


@pytest.mark.parametrize("draw", ALL)
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("decodes", DECODES)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)
    assert len(drawn[0].legends) == 1


def test_drafts_and_bands_are_those_of_the_group(drawn):
    table = make_draft_verify()
    plot_draft_verify({"T0": table}, B, *NOWHERE, title="Drafts")
    (axes,) = drawn[0].axes
    rows, lines = table[table["group"] == "average"], lines_of(axes)
    names = {
        "draft b, verify b": "tau_same",
        "draft B, verify b": "tau_trained",
        "draft 2B = 16, verify b": "tau_double",
    }
    for label, name in names.items():
        np.testing.assert_array_equal(lines[label].get_xdata(), rows["block_size"])
        np.testing.assert_array_equal(lines[label].get_ydata(), rows[name])
    bands = [band.get_paths()[0].get_extents() for band in axes.collections]
    for band, name in zip(bands, names.values(), strict=True):
        assert band.y0 == pytest.approx(rows[f"{name}_low"].min())
        assert band.y1 == pytest.approx(rows[f"{name}_high"].max())
    drafts = [lines[label] for label in names]
    assert len({line.get_marker() for line in drafts}) == 3
    assert len({line.get_color() for line in drafts}) == 3
    assert axes.get_title() == "decode T0, average, n = 98"
    assert axes.get_ylim()[0] == 0
    assert "tokens per round" in axes.get_ylabel() and "tokens" in axes.get_xlabel()
    trained = lines["trained block size B = 8"]
    assert list(trained.get_xdata()) == [B, B]
    plot_draft_verify({"T0": table}, B, *NOWHERE, title="Drafts", group="code")
    assert drawn[1].axes[0].get_title() == "decode T0, code, n = 29"


def test_findings_stack_ties_on_what_is_clear(drawn):
    table, found = make_distribution(), make_findings()
    plot_findings({"T0": table}, {"T0": found}, B, *NOWHERE, title="Best sizes")
    (axes,) = drawn[0].axes
    filled, hollow = axes.containers
    clear = [np.nan_to_num(bar.get_height()) for bar in filled]
    ties = [np.nan_to_num(bar.get_height()) for bar in hollow]
    share = 100 / table["count"].sum()
    np.testing.assert_allclose(clear, (table["count"] - table["n_ties"]) * share)
    np.testing.assert_allclose(ties, table["n_ties"] * share)
    assert sum(clear) + sum(ties) == pytest.approx(100)
    for below, above in zip(filled, hollow, strict=True):
        assert above.get_y() == pytest.approx(np.nan_to_num(below.get_height()), nan_ok=True)
        assert above.get_x() == below.get_x()
        assert above.get_hatch() and not below.get_hatch()
        assert above.get_facecolor() == (1, 1, 1, 1) != below.get_facecolor()
    centres = [bar.get_x() + bar.get_width() / 2 for bar in filled]
    np.testing.assert_allclose(centres, table["block_size"])
    (band,) = [p for p in axes.patches if p.get_label() == "B - 2 to B + 2"]
    assert (band.get_extents().transformed(axes.transData.inverted()).x0) == pytest.approx(B - 2.5)
    first, second = axes.get_title().splitlines()
    assert first == f"decode T0, average, n = {found['n'][0]} ({found['n_ties'][0]} ties)"
    for k in (1, 2, 3):
        value = 100 * found[f"share_within_{k}"][0]
        assert f"±{k}: {value:.0f} [{value - 3:.0f}, {value + 3:.0f}] %" in second
    assert axes.get_ylim()[0] == 0 and axes.get_ylabel().endswith("(%)")


def test_schemes_have_a_panel_per_decode_and_group(drawn):
    fewer = make_schemes(schemes=("match", "coupled"))
    fewer = fewer[fewer["group"] != "prose"]
    plot_schemes({"T1": make_schemes(), "T07": fewer}, B, *NOWHERE, title="Schemes")
    panels = drawn[0].axes
    groups = ["average", "arithmetic", "code", "prose", "human_eval"]
    counts = [98, 97, 96, 95, 94]
    first = [f"T1, {g}, n = {n}" for g, n in zip(groups, counts, strict=True)]
    second = [f"T07, {g}, n = {n}" for g, n in zip(groups, [98, 97, 96, 0, 94], strict=True)]
    assert [axes.get_title() for axes in panels] == first + second
    schemes = {"match", "coupled", "rejection"}
    drawn_schemes = [set(lines_of(axes)) & schemes for axes in panels]
    no_rejection = schemes - {"rejection"}
    expected = [schemes] * 5 + [no_rejection] * 3 + [set(), no_rejection]
    assert drawn_schemes == expected
    table = make_schemes()
    rows = table[(table["group"] == "code") & (table["scheme"] == "coupled")]
    np.testing.assert_array_equal(lines_of(panels[2])["coupled"].get_ydata(), rows["tau_mean"])
    styles = [(line.get_marker(), line.get_color()) for line in panels[0].lines[:3]]
    assert len({marker for marker, _ in styles}) == len({colour for _, colour in styles}) == 3
    assert [axes.get_xlabel() != "" for axes in panels] == [False] * 5 + [True] * 5
    assert all(axes.get_ylim()[0] == 0 for axes in panels)
    assert labels_of(drawn[0]) == ["match", "coupled", "rejection", "trained block size B = 8"]


def test_cost_bars_add_up(drawn):
    table = make_cost(sizes=[4, 8])
    plot_cost({"T0": table}, *NOWHERE, title="Costs")
    (axes,) = drawn[0].axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["replay", "live"]
    for position, method in enumerate(("replay", "live")):
        bars = [bar for bar in axes.patches if bar.get_y() < position < bar.get_y() + 1]
        rows = table[(table["method"] == method) & (table["part"] != "total")]
        np.testing.assert_allclose([bar.get_width() for bar in bars], rows["label_ms"])
        assert [bar.get_x() for bar in bars] == pytest.approx(
            [0, *np.cumsum(rows["label_ms"])[:-1]]
        )
        assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == len(bars)
    total = table.loc[table["part"] == "total", "label_ms"].tolist()
    heading = f"decode T0, live / replay = {total[0] / total[1]:.3g}"
    assert axes.get_title() == f"{heading}\nn = 24 requests x 2 sizes"
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts == ["9.7 ms = 3.1 + 0.4 + 6.2", f"{total[0]:.3g} ms"]
    assert axes.get_xlabel().startswith("ms ")
    names = ["trajectories", "context", "blocks", "decoding at b = 4 to 8, left to right"]
    assert labels_of(drawn[0]) == names
    assert axes.get_xlim()[0] == 0


def test_shades_of_block_sizes_darken(drawn):
    plot_cost({"T0": make_cost()}, *NOWHERE, title="Costs")
    shades = [bar.get_facecolor()[0] for bar in drawn[0].axes[0].patches if bar.get_y() > 0.5]
    assert len(shades) == 16 and shades == sorted(shades, reverse=True)


def test_parts_that_only_one_variant_has_are_in_the_legend(drawn):
    other = make_cost().replace({"part": {"context": "upload of the context"}})
    plot_cost({"T0": make_cost(), "T1": other}, *NOWHERE, title="Costs")
    assert {"context", "upload of the context"} < set(labels_of(drawn[0]))


def test_bounds_are_hollow_gains(drawn):
    tables = {"T0": make_bounds(), "T1": make_bounds(objectives=("rounds",))}
    plot_bounds(tables, *NOWHERE, title="Bounds")
    names = ["oracle (bound)", "clairvoyant (bound)", "clairvoyant_verify (bound)"]
    left, right = drawn[0].axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == names
    rounds, seconds = left.containers
    assert [bar.get_width() for bar in rounds] == pytest.approx([7, 41, 48])
    assert [bar.get_width() for bar in seconds] == pytest.approx([5.6, 32.8, 38.4])
    assert all(bar.get_facecolor()[3] == 0 for bar in (*rounds, *seconds))
    assert rounds[0].get_linestyle() != seconds[0].get_linestyle()
    for place, bar in enumerate(rounds):
        assert bar.get_y() < place < seconds[place].get_y() + seconds[place].get_height()
    (alone,) = right.containers
    centres = [bar.get_y() + bar.get_height() / 2 for bar in alone]
    assert centres == pytest.approx([0, 1, 2])
    intervals = [list(line.get_xdata()) for line in right.lines[:-1]]
    np.testing.assert_allclose(intervals, [[5, 9], [39, 43], [46, 50]])
    assert [text.get_text().strip() for text in right.texts] == ["+7.0 %", "+41.0 %", "+48.0 %"]
    # Read from the top down, from the weakest bound to the strongest.
    assert left.get_ylim()[0] > left.get_ylim()[1]
    assert left.get_title() == "decode T0, average, n = 98"
    assert left.get_xlabel().endswith("(%)")
    assert labels_of(drawn[0]) == ["tokens per round", "modelled seconds per token"]


def test_missing_intervals_can_be_drawn(drawn):
    tables = [make_draft_verify(), make_findings(), make_schemes(), make_bounds()]
    for table in tables:
        ends = [name for name in table if name.endswith(("_low", "_high"))]
        table[ends] = np.nan
    same, found, schemes, bounds = tables
    plot_draft_verify({"T0": same}, B, *NOWHERE, title="Drafts")
    plot_findings({"T0": make_distribution()}, {"T0": found}, B, *NOWHERE, title="Best sizes")
    plot_schemes({"T1": schemes}, B, *NOWHERE, title="Schemes")
    plot_bounds({"T0": bounds}, *NOWHERE, title="Bounds")
    assert "[" not in drawn[1].axes[0].get_title()
    assert drawn[3].axes[0].texts[0].get_position()[0] == pytest.approx(7)
