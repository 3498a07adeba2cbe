import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from blockpilot.plots import plot_speedup, plot_tau

PNG_HEADER = b"\x89PNG\r\n\x1a\n"


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


def draw_tau(folder, tables):
    paths = folder / "tau.svg", folder / "tau.png"
    plot_tau(tables, 10, *paths, title="Acceptance length by block size")
    return paths


def draw_speedup(folder, summaries):
    paths = folder / "speedup.svg", folder / "speedup.png"
    plot_speedup(summaries, *paths, title="Speedup over autoregressive decoding")
    return paths


@pytest.mark.parametrize("draw", [draw_tau, draw_speedup])
@pytest.mark.parametrize("decodes", [("T0",), ("T0", "T1")])
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw, decodes):
    make = make_tau_table if draw is draw_tau else make_summary
    first = [path.read_bytes() for path in draw(tmp_path / "a", {d: make() for d in decodes})]
    second = [path.read_bytes() for path in draw(tmp_path / "b", {d: make() for d in decodes})]
    assert first == second
    assert first[0].rstrip().endswith(b"</svg>") and len(first[0]) > 5000
    assert first[1].startswith(PNG_HEADER) and len(first[1]) > 5000
    assert b"<dc:date>" not in first[0]
    assert sorted(p.suffix for p in (tmp_path / "a").iterdir()) == [".png", ".svg"]


def test_settings_do_not_leak(tmp_path):
    before = dict(mpl.rcParams)
    draw_tau(tmp_path, {"T0": make_tau_table()})
    assert dict(mpl.rcParams) == before


def test_missing_intervals_and_times_can_be_drawn(tmp_path):
    table = make_tau_table(("average",))
    table[["tau_mean_low", "tau_mean_high"]] = np.nan
    draw_tau(tmp_path, {"T0": table})
    draw_speedup(tmp_path, {"T0": make_summary(timed=False)})


def test_many_groups_can_be_drawn(tmp_path):
    groups = ["average", *(f"domain {i}" for i in range(9))]
    draw_tau(tmp_path, {"T0": make_tau_table(groups, height=5)})
