"""Replay beside live decoding: agreement and costs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from group_cases import (
    NAN,
    PROMPTS,
    RESAMPLES,
)

from blockpilot.errors import BlockPilotError
from blockpilot.replay_control import agreement_table, cost_table, pair_table, part_size


def make_control():
    """Return two sizes of three prompts; one pair differs in its rounds, one text differs."""
    live = {4: [[2, 2], [2, 1], [3]], 8: [[4], [3], [1, 2]]}
    replay = {4: [[2, 2], [1, 2], [3]], 8: [[4], [3], [3]]}
    rows = [
        {
            "prompt_id": prompt,
            "seed": 0,
            "block_size": size,
            "method": method,
            "num_rounds": len(committed),
            "num_committed": np.array(committed),
            "tau": NAN,
            "tpot_s": None,
            "equals_ar": (prompt, size) != ("sums-01", 4) if method == "live" else None,
        }
        for method, by_size in (("replay", replay), ("live", live))
        for size, rows in by_size.items()
        for prompt, committed in zip(PROMPTS["prompt_id"], rows, strict=True)
    ]
    return pd.DataFrame(rows)


def test_agreement_by_hand():
    table = agreement_table(make_control(), PROMPTS, resamples=RESAMPLES)
    assert table["group"].tolist() == ["average", "arithmetic"]
    row = table.iloc[0]
    assert row[["num_pairs", "equal_pairs", "num_rounds_live"]].tolist() == [6, 4, 9]
    assert row["mismatch_share"] == pytest.approx(2 / 6)
    assert row["equal_text"] == "5/6"
    assert row["tau_live"] == pytest.approx((2 + 1.5 + 3 + 4 + 3 + 1.5) / 6)
    assert row["tau_replay"] == pytest.approx((2 + 1.5 + 3 + 4 + 3 + 3) / 6)
    assert row["tau_live_low"] <= row["tau_live"] <= row["tau_live_high"]


def test_out_of_domain_controls_are_groups_of_their_own():
    prompts = PROMPTS.assign(dataset=["sums", "sums", "poems"], domain=["a", "a", "verse"])
    table = agreement_table(make_control(), prompts, ["poems"], resamples=RESAMPLES)
    assert table["group"].tolist() == ["average", "a", "poems"]
    assert table["num_pairs"].tolist() == [4, 4, 2]
    assert table["equal_pairs"].tolist() == [3, 3, 1]


def test_pairs_by_hand():
    prompts = PROMPTS.assign(dataset=["sums", "poems", "sums"], domain=["b", "verse", "a"])
    table = pair_table(make_control(), prompts, ["poems"])
    columns = ["group", "prompt_id", "seed", "block_size", "tau_live", "tau_replay", "is_equal"]
    assert table.columns.tolist() == columns
    assert table.to_numpy().tolist() == [
        ["a", "sums-02", 0, 4, 3, 3, True],
        ["a", "sums-02", 0, 8, 1.5, 3, False],
        ["b", "sums-00", 0, 4, 2, 2, True],
        ["b", "sums-00", 0, 8, 4, 4, True],
        ["poems", "sums-01", 0, 4, 1.5, 1.5, False],
        ["poems", "sums-01", 0, 8, 3, 3, True],
    ]


@pytest.mark.parametrize("method", ["live", "replay"])
@pytest.mark.parametrize("tabulate", [agreement_table, pair_table])
def test_a_pair_with_one_method_is_an_error(method, tabulate):
    control = make_control()
    where = control["prompt_id"] == "sums-02"
    gone = where & (control["block_size"] == 8) & (control["method"] == method)
    other = {"live": "replay", "replay": "live"}[method]
    message = rf"prompt 'sums-02', seed 0, block size 8 is \['{other}'\]; allowed: live and"
    with pytest.raises(BlockPilotError, match=message):
        tabulate(control[~gone], PROMPTS)
    renamed = control.assign(method=control["method"].where(~gone, "guessed"))
    with pytest.raises(BlockPilotError, match="guessed"):
        tabulate(renamed, PROMPTS)


def make_cost():
    rows = [("live", "b = 16", 1.0), ("live", "b = 4", 3.0)]
    rows += [("replay", "blocks", 0.3), ("replay", "trajectories", 0.2)]
    frame = pd.DataFrame(rows, columns=["method", "part", "total_s"])
    return frame.assign(num_requests=5, num_block_sizes=2)


def test_cost_by_hand():
    table = cost_table(make_cost())
    assert table["method"].tolist() == ["live"] * 3 + ["replay"] * 3
    assert table["part"].tolist() == ["b = 4", "b = 16", "total", "trajectories", "blocks", "total"]
    assert table["total_s"].tolist() == pytest.approx([3, 1, 4, 0.2, 0.3, 0.5])
    assert table["label_ms"].tolist() == pytest.approx([300, 100, 400, 20, 30, 50])
    expected = [NAN, NAN, 8, NAN, NAN, 1]
    assert table["speedup_of_replay"].tolist() == pytest.approx(expected, nan_ok=True)


def test_parts_of_live_labelling_are_block_sizes():
    sizes = [part_size(part) for part in ("b = 8", "16", "blocks", "total", "b = x")]
    assert sizes == [8, 16, None, None, None]


def test_texts_of_another_engine_are_not_compared():
    control = make_control().assign(equals_ar=None)
    assert agreement_table(control, PROMPTS)["equal_text"].tolist() == ["", ""]


def test_costs_are_per_label_of_their_own_method():
    cost = make_cost()
    cost.loc[cost["method"] == "replay", "num_block_sizes"] = 4
    table = cost_table(cost)
    assert table["label_ms"].tolist()[-1] == pytest.approx(25)
    assert table["speedup_of_replay"].iloc[2] == pytest.approx(16)


def test_costs_that_cannot_be_compared_are_errors():
    cost = make_cost()
    message = r"of replay is \[\]; allowed: one pair"
    with pytest.raises(BlockPilotError, match=message):
        cost_table(cost[cost["method"] == "live"])
    cost.loc[0, "num_block_sizes"] = 1
    with pytest.raises(BlockPilotError, match=r"of live is \[\[5, 1\], \[5, 2\]\]"):
        cost_table(cost)
