"""The figures of tau and of speedups: written whole, reproducibly, and with all that they need."""

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
)

from blockpilot import plots
from blockpilot.plots import plot_speedup, plot_tau


def make_tau_table(groups=("average", "arithmetic", "code", "prose"), height=3.0):
    """Return invented curves that rise and fall around block size 10."""
    sizes = np.arange(1, 21)
    parts = []
    for index, group in enumerate(groups):
        tau = 1 + (height - 0.4 * index) * (sizes - 1) / (10 + (sizes - 1) ** 1.4) * 2
        parts.append(
            pd.DataFrame(
                {
                    "group": group,
                    "block_size": sizes,
                    "n": 40 + index,
                    "tau_mean": tau,
                    "tau_mean_low": tau - 0.1,
                    "tau_mean_high": tau + 0.15,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def make_summary(timed=True):
    """Return invented speedups; `clairvoyant` is never timed."""
    values = {
        "ar": 1.0,
        "ar_control": 0.99,
        "best_fixed": 1.9,
        "blockpilot": 1.95,
        "blockpilot_gated": 1.93,
        "clairvoyant": np.nan,
        "confidence": 2.05,
        "fixed:10": 1.88,
        "oracle": 2.2,
        "oracle_cross_seed": 2.0,
    }
    speedup = pd.Series(list(values.values())) * (1 if timed else np.nan)
    return pd.DataFrame(
        {
            "policy": list(values),
            "group": "average",
            "n": 120,
            "n_timed": np.where(speedup.isna(), 0, 40),
            "speedup": speedup,
            "speedup_low": speedup - 0.05,
            "speedup_high": speedup + 0.06,
        }
    )


def draw_tau(paths, decodes):
    plot_tau({d: make_tau_table() for d in decodes}, 10, *paths, title=TITLES["tau_by_block_size"])


def draw_many_groups(paths, decodes):
    groups = ["average", *(f"domain {i}" for i in range(9))]
    tables = {d: make_tau_table(groups, height=5) for d in decodes}
    plot_tau(tables, 10, *paths, title=TITLES["tau_by_block_size"])


def draw_speedup(paths, decodes):
    plot_speedup({d: make_summary() for d in decodes}, *paths, title=TITLES["speedup"])


ALL = [draw_tau, draw_many_groups, draw_speedup]


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, plots)


@pytest.mark.parametrize("draw", [draw_tau, draw_speedup])
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("decodes", DECODES)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)


def test_missing_intervals_and_times_can_be_drawn(drawn):
    table = make_tau_table(("average",))
    table[["tau_mean_low", "tau_mean_high"]] = np.nan
    plot_tau({"T0": table}, 10, *NOWHERE, title="Acceptance length")
    plot_speedup({"T0": make_summary(timed=False)}, *NOWHERE, title="Speedup")
    assert [text.get_text() for text in drawn[1].axes[0].texts] == ["not timed"] * 10
