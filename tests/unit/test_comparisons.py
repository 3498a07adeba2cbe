"""Drafts against what is verified, and schemes: by hand, and against naive tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from group_cases import (
    NAN,
    PROMPTS,
    RESAMPLES,
    assert_interval,
    by_prompt,
    grid_sizes,
    make_grid,
    make_prompts,
    make_row,
    mixed_prompts,
    naive_groups,
    naive_tau,
    random_taus,
)

from blockpilot.comparisons import draft_temperature_table, draft_verify_table, schemes_table
from blockpilot.errors import BlockPilotError
from blockpilot.findings import finding_distribution, findings_table

# Drafted and verified sizes.


def hand_taus():
    """Return the taus of 3 prompts at B = 2."""
    return {
        (1, 1): [1, 1, 1],
        (2, 2): [1.5, 1.6, 1.7],
        (3, 3): [2, 2.5, 3],
        (4, 4): [2, 2, 3.5],
        (2, 1): [1, 1, 1],
        (4, 1): [1, 1, 1],
        (4, 2): [1.6, 1.6, 1.9],
        (4, 3): [1.9, 2.1, 2.6],
    }


def test_draft_verify_by_hand():
    table = draft_verify_table(make_grid(hand_taus()), PROMPTS, 2, resamples=RESAMPLES)
    assert table["group"].tolist() == ["average"] * 4 + ["arithmetic"] * 4
    assert table["n"].tolist() == [3] * 8
    rows = table[table["group"] == "average"].set_index("block_size")
    assert rows["tau_same"].tolist() == pytest.approx([1, 1.6, 2.5, 2.5])
    assert rows["tau_trained"].tolist() == pytest.approx([1, 1.6, NAN, NAN], nan_ok=True)
    assert rows["tau_double"].tolist() == pytest.approx([1, 1.7, 2.2, 2.5])
    assert rows["gain_trained"].tolist() == pytest.approx([0, 0, NAN, NAN], nan_ok=True)
    assert rows["gain_double"].tolist() == pytest.approx([0, 0.1, -0.3, 0])
    # (B, B) and (2B, 2B) are their own comparison: no doubt is left.
    assert rows.loc[4, ["gain_double_low", "gain_double_high"]].tolist() == [0, 0]
    assert rows.loc[4, "tau_same_low"] < 2.5 < rows.loc[4, "tau_same_high"]
    assert rows.loc[3:, ["tau_trained_low", "gain_trained_high"]].isna().all().all()


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_draft_verify_against_a_naive_table(seeds):
    prompts, trained = mixed_prompts(), 3
    generator = np.random.default_rng(len(seeds))
    taus = random_taus(generator, len(prompts) * len(seeds), trained)
    grid = make_grid(taus, prompts, seeds).sample(frac=1, random_state=0)
    settings = {"out_of_domain": ["poems"], "resamples": RESAMPLES, "seed": 5}
    table = draft_verify_table(grid, prompts, trained, **settings)
    own = {sizes: by_prompt(values, prompts, len(seeds)) for sizes, values in taus.items()}
    groups = naive_groups(prompts)
    assert list(dict.fromkeys(table["group"])) == list(groups)
    for _, row in table.iterrows():
        members, size = groups[row["group"]], row["block_size"]
        found = {
            name: naive_tau(members, 5, own[draft, size])
            for name, draft in (("same", size), ("trained", trained), ("double", 2 * trained))
            if size <= draft
        }
        assert row["n"] == sum(np.isfinite(own[size, size][m["prompt_id"]]).sum() for m in members)
        for name, (value, samples) in found.items():
            assert_interval(row, f"tau_{name}", value, samples)
            if name != "same":
                gain = value - found["same"][0], samples - found["same"][1]
                assert_interval(row, f"gain_{name}", *gain)
        assert ("trained" in found) == np.isfinite(row["tau_trained"])


def test_a_constant_gain_is_certain_although_tau_is_not():
    prompts, trained = make_prompts(12), 2
    taus = random_taus(np.random.default_rng(0), 12, trained)
    taus[4, 2] = taus[2, 2] + 0.5
    table = draft_verify_table(make_grid(taus, prompts), prompts, trained, resamples=RESAMPLES)
    row = table.set_index(["group", "block_size"]).loc[("average", 2)]
    gains = row[["gain_double", "gain_double_low", "gain_double_high"]].tolist()
    assert gains == pytest.approx([0.5] * 3)
    assert row["tau_double_high"] - row["tau_double_low"] > 0.5


def test_missing_sizes_and_requests_are_errors():
    grid = make_grid(hand_taus())
    gone = (grid["draft_size"] == 4) & (grid["block_size"] == 3)
    with pytest.raises(BlockPilotError, match=r"sizes is \(4, 3\); allowed: all sizes up to 4"):
        draft_verify_table(grid[~gone], PROMPTS, 2)
    with pytest.raises(BlockPilotError, match=r"sizes is \(3, 1\); allowed: all sizes up to 6"):
        draft_verify_table(grid, PROMPTS, 3)
    last = gone & (grid["prompt_id"] == "sums-02")
    message = r"sizes \(4, 3\) lacks 1 of 3 requests, first \('sums-02', 0\)"
    with pytest.raises(BlockPilotError, match=message):
        draft_verify_table(grid[~last], PROMPTS, 2)
    with pytest.raises(BlockPilotError, match=r"sizes \(1, 1\) for prompt 'sums-00' is 'repeated'"):
        draft_verify_table(pd.concat([grid, grid.iloc[:1]]), PROMPTS, 2)


def test_a_missing_seed_is_an_error():
    grid = make_grid({sizes: [1, 1, 1] * 2 for sizes in grid_sizes(2)}, seeds=(0, 1))
    with pytest.raises(BlockPilotError, match=r"lacks 1 of 6 requests, first \('sums-00', 0\)"):
        draft_verify_table(grid.iloc[1:], PROMPTS, 2)


def test_splits_without_rows_are_an_error():
    grid = make_grid(hand_taus())
    for call in (draft_verify_table, findings_table, finding_distribution):
        message = r"splits is \['validation'\]; allowed: splits with rows: \['test'\]"
        with pytest.raises(BlockPilotError, match=message):
            call(grid, PROMPTS, 2, splits=("validation",))


# Schemes.


def make_schemes(taus, prompts=PROMPTS):
    """Return SCHEMES rows; keys of `taus` are (scheme, temperature, block size)."""
    return pd.DataFrame(
        [
            make_row(
                prompt, tau, scheme=scheme, draft_temperature=temperature, block_size=size,
                method="live" if scheme == "rejection" else "replay",
            )
            for (scheme, temperature, size), values in taus.items()
            for prompt, tau in zip(prompts["prompt_id"], values, strict=True)
        ]
    )  # fmt: skip


def hand_schemes(match_temperature=NAN):
    return {
        ("match", match_temperature, 4): [1, 2, 3],
        ("match", match_temperature, 8): [2, 3, 4],
        ("coupled", 0.7, 4): [1.5, 2.5, 3.5],
        ("coupled", 0.7, 8): [2, 4, 6],
        ("coupled", 1.0, 4): [9, 9, 9],
        ("rejection", 0.7, 8): [3, 3, 6],
    }


@pytest.mark.parametrize("match_temperature", [NAN, 0.0, 1.0])
def test_schemes_by_hand(match_temperature):
    schemes = make_schemes(hand_schemes(match_temperature)).sample(frac=1, random_state=1)
    table = schemes_table(schemes, PROMPTS, 0.7, resamples=RESAMPLES)
    rows = table[table["group"] == "average"]
    names = list(zip(rows["scheme"], rows["block_size"], strict=True))
    assert names == [("match", 4), ("match", 8), ("coupled", 4), ("coupled", 8), ("rejection", 8)]
    assert rows["n"].tolist() == [3] * 5
    assert rows["tau_mean"].tolist() == pytest.approx([2, 3, 2.5, 4, 4])
    gains = [NAN, NAN, 0.5, 1, 1]
    assert rows["gain_over_match"].tolist() == pytest.approx(gains, nan_ok=True)
    coupled = rows.iloc[2]
    ends = coupled[["gain_over_match_low", "gain_over_match_high"]].tolist()
    assert ends == pytest.approx([0.5, 0.5])
    assert coupled["tau_mean_low"] < 2.5 < coupled["tau_mean_high"]


def test_schemes_may_have_temperatures_of_their_own():
    taus = hand_schemes() | {("rejection", 1.3, 8): [7, 7, 7]}
    table = schemes_table(make_schemes(taus), PROMPTS, {"coupled": 1.0, "rejection": 1.3})
    rows = table[table["group"] == "average"].set_index(["scheme", "block_size"])
    assert rows.loc[("coupled", 4), "tau_mean"] == 9
    assert rows.loc[("rejection", 8), "tau_mean"] == 7
    assert ("coupled", 8) not in rows.index


def test_schemes_against_a_naive_table():
    prompts = mixed_prompts()
    generator = np.random.default_rng(3)
    keys = [(s, t, b) for s, t in (("match", NAN), ("coupled", 1.0)) for b in (2, 5)]
    taus = {key: generator.integers(10, 60, len(prompts)) / 10 for key in keys}
    settings = {"out_of_domain": ["poems"], "resamples": RESAMPLES, "seed": 2}
    table = schemes_table(make_schemes(taus, prompts), prompts, 1.0, **settings)
    own = {(s, b): by_prompt(values, prompts, 1) for (s, _, b), values in taus.items()}
    groups = naive_groups(prompts)
    assert len(table) == 4 * len(groups)
    for _, row in table.iterrows():
        members, size = groups[row["group"]], row["block_size"]
        value, samples = naive_tau(members, 2, own[row["scheme"], size])
        assert_interval(row, "tau_mean", value, samples)
        if row["scheme"] == "coupled":
            match = naive_tau(members, 2, own["match", size])
            assert_interval(row, "gain_over_match", value - match[0], samples - match[1])


def test_schemes_must_be_comparable():
    schemes = make_schemes(hand_schemes())
    message = r"draft temperature of rejection is 1.0; allowed: one of \[0.7\]"
    with pytest.raises(BlockPilotError, match=message):
        schemes_table(schemes, PROMPTS, 1.0)
    message = r"draft temperature of coupled is None; allowed: one of \[0.7, 1.0\]"
    with pytest.raises(BlockPilotError, match=message):
        schemes_table(schemes, PROMPTS, {"rejection": 0.7})
    no_match = schemes[(schemes["scheme"] != "match") | (schemes["block_size"] != 8)]
    with pytest.raises(BlockPilotError, match="block size without match is 8"):
        schemes_table(no_match, PROMPTS, 0.7)
    gone = (schemes["scheme"] == "rejection") & (schemes["prompt_id"] == "sums-01")
    message = r"\('rejection', 8\) lacks 1 of 3 requests, first \('sums-01', 0\)"
    with pytest.raises(BlockPilotError, match=message):
        schemes_table(schemes[~gone], PROMPTS, 0.7)


def make_temperatures():
    prompts = pd.concat(
        [make_prompts(3, split="validation"), make_prompts(2, "poems", "verse", "validation")],
        ignore_index=True,
    )
    taus = {
        ("match", NAN, 8): [9] * 5,
        ("coupled", 0.5, 8): [2, 2, 2, 9, 9],
        ("coupled", 0.7, 8): [2, 3, 4, 1, 1],
        ("coupled", 1.0, 8): [4, 3, 2, 1, 1],
        ("coupled", 0.5, 4): [9] * 5,
        ("rejection", 0.5, 8): [1] * 5,
        ("rejection", 1.0, 8): [2] * 5,
    }
    return make_schemes(taus, prompts), prompts


def test_the_best_draft_temperature_is_that_of_the_average():
    schemes, prompts = make_temperatures()
    settings = {"out_of_domain": ["poems"], "resamples": RESAMPLES}
    table = draft_temperature_table(schemes, prompts, 8, **settings)
    assert set(table["block_size"]) == {8} and "match" not in set(table["scheme"])
    rows = table[table["group"] == "average"]
    assert rows["draft_temperature"].tolist() == [0.5, 0.7, 1.0, 0.5, 1.0]
    assert rows["tau_mean"].tolist() == pytest.approx([2, 3, 3, 1, 2])
    assert (rows["tau_mean_low"] <= rows["tau_mean"]).all()
    # The lowest of equals, and not what is best out of domain.
    for _, own in table.groupby("group"):
        assert own["is_best"].tolist() == [False, True, False, False, True]
    with pytest.raises(BlockPilotError, match="block size of the draft temperatures is 6"):
        draft_temperature_table(schemes, prompts, 6)


def test_tables_depend_on_the_seed_and_not_on_the_order_of_rows():
    prompts = mixed_prompts()
    taus = random_taus(np.random.default_rng(1), len(prompts), 2)
    grid = make_grid(taus, prompts)
    settings = {"splits": ("train", "test"), "resamples": RESAMPLES}
    for call in (draft_verify_table, findings_table):
        first = call(grid, prompts, 2, **settings)
        shuffled = prompts.sample(frac=1, random_state=1)
        again = call(grid.sample(frac=1, random_state=2), shuffled, 2, **settings)
        pd.testing.assert_frame_equal(first, again, check_exact=True)
        assert not first.equals(call(grid, prompts, 2, seed=1, **settings))
