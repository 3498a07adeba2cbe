"""Where B* lies: by hand, and against a naive count."""

from __future__ import annotations

import numpy as np
import pytest
from group_cases import (
    NAN,
    PROMPTS,
    RESAMPLES,
    assert_interval,
    by_prompt,
    make_grid,
    make_prompts,
    mixed_prompts,
    naive_groups,
    naive_ratios,
)

from blockpilot.errors import BlockPilotError
from blockpilot.findings import finding_distribution, findings_table


def test_findings_by_hand():
    # B = 2; the best sizes are 3, then 2 and 4, then 1 and 4, and the last has no round.
    taus = {
        (1, 1): [1.0, 1.0, 2.0, NAN],
        (2, 2): [1.5, 2.0, 1.0, NAN],
        (3, 3): [3.0, 1.0, 1.0, NAN],
        (4, 4): [2.9, 2.0, 2.0, NAN],
        (4, 1): [9.0, 9.0, 9.0, 9.0],
    }
    prompts = make_prompts(4)
    table = findings_table(make_grid(taus, prompts), prompts, 2, ("test",), resamples=RESAMPLES)
    row = table.set_index("group").loc["average"]
    assert row[["n", "n_ties", "n_clear"]].tolist() == [3, 2, 1]
    assert [row[f"share_within_{k}"] for k in (1, 2, 3)] == [1, 1, 1]
    assert [row[f"share_within_{k}_clear"] for k in (1, 2, 3)] == [1, 1, 1]
    # One clear request says nothing about others.
    assert np.isnan(row["share_within_1_clear_low"])
    spread = finding_distribution(make_grid(taus, prompts), prompts, 2, ("test",))
    rows = spread[spread["group"] == "average"]
    assert rows["block_size"].tolist() == [1, 2, 3, 4]
    assert rows["count"].tolist() == [1, 1, 1, 0]
    assert rows["share"].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert rows["n_ties"].tolist() == [1, 1, 0, 0]


def test_a_tie_counts_at_its_smallest_size_and_anywhere():
    # B = 4: best sizes 1 and 5; 8; 6.
    best = [{1, 5}, {8}, {6}]
    taus = {(b, b): [3.0 if b in own else 2.0 for own in best] for b in range(1, 9)}
    row = findings_table(make_grid(taus), PROMPTS, 4, ("test",), resamples=RESAMPLES).iloc[0]
    names = [f"{name}_{k}" for k in (1, 2, 3) for name in ("share_within", "any_within")]
    assert row[names].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3])
    clear = [row[f"share_within_{k}_clear"] for k in (1, 2, 3)]
    assert clear == pytest.approx([0, 0.5, 0.5])
    assert row["share_within_2_low"] < 1 / 3 < row["share_within_2_high"]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_findings_against_a_naive_table(seeds):
    prompts, trained, count = mixed_prompts(), 4, 27 * len(seeds)
    generator = np.random.default_rng(9)
    sizes = range(1, 2 * trained + 1)
    finished = generator.random(count) < 1 / 8
    # Few values: many ties.
    values = {b: np.where(finished, NAN, generator.integers(10, 15, count) / 10) for b in sizes}
    grid = make_grid({(b, b): values[b] for b in sizes}, prompts, seeds)
    splits, settings = ("train", "test"), {"out_of_domain": ["poems"]}
    more = {"resamples": RESAMPLES, "seed": 4}
    table = findings_table(grid, prompts, trained, splits, **settings, **more)
    spread = finding_distribution(grid, prompts, trained, splits, **settings)
    best = [
        [b for b in sizes if values[b][i] == max(values[s][i] for s in sizes)] for i in range(count)
    ]
    requests = by_prompt(best, prompts, len(seeds))
    requests = {p: [own for own in rows if own] for p, rows in requests.items()}
    for group, members in naive_groups(prompts, splits).items():
        # Prompts without a round at any seed are no part of the group.
        members = [row for row in members if requests[row["prompt_id"]]]
        rows = [own for row in members for own in requests[row["prompt_id"]]]
        row = table.set_index("group").loc[group]
        clear = [own for own in rows if len(own) == 1]
        counts = [len(rows), len(rows) - len(clear), len(clear)]
        assert row[["n", "n_ties", "n_clear"]].tolist() == counts and counts[1] > 2
        for k in (1, 2, 3):
            for name, hit, counted in (
                (f"share_within_{k}", lambda own, k=k: abs(own[0] - trained) <= k, lambda own: 1),
                (
                    f"share_within_{k}_clear",
                    lambda own, k=k: len(own) == 1 and abs(own[0] - trained) <= k,
                    lambda own: len(own) == 1,
                ),
                (
                    f"any_within_{k}",
                    lambda own, k=k: any(abs(b - trained) <= k for b in own),
                    lambda own: 1,
                ),
            ):
                tops = {p: [hit(own) for own in rows] for p, rows in requests.items()}
                bottoms = {p: [counted(own) for own in rows] for p, rows in requests.items()}
                assert_interval(row, name, *naive_ratios(members, 4, tops, bottoms))
        own = spread[spread["group"] == group].set_index("block_size")
        for b in sizes:
            at = [r for r in rows if r[0] == b]
            assert own.loc[b, "count"] == len(at)
            assert own.loc[b, "n_ties"] == sum(len(r) > 1 for r in at)
            assert own.loc[b, "share"] == pytest.approx(len(at) / len(rows))


def test_findings_need_every_size_of_every_request():
    grid = make_grid({(b, b): [1, 2, 3] for b in (1, 2, 4)})
    with pytest.raises(BlockPilotError, match="missing block size is 3; allowed: all of 1 to 4"):
        findings_table(grid, PROMPTS, 2)
    grid = make_grid({(b, b): [1, 2, 3] for b in (1, 2, 3, 4)})
    with pytest.raises(BlockPilotError, match="block_size 1 lacks 1 of 3 requests"):
        finding_distribution(grid.iloc[1:], PROMPTS, 2)
