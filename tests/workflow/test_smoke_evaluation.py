"""The smoke run: policies, times and the tables made of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from smoke_facts import DOMAINS, KEY, LEAST_EQUAL_SHARE, VARIANTS, as_lists

from blockpilot.records import EVALUATION, PREDICTIONS, read_table

# Evaluation


def test_every_policy_has_every_test_prompt(evaluation, pairs, swept) -> None:
    test = set(map(tuple, pairs.loc[pairs["split"] == "test", KEY].to_numpy()))
    policies = {"ar", "ar_control", "best_fixed", "blockpilot", "oracle"}
    policies |= {f"fixed:{b}" for b in swept}
    assert set(evaluation["policy"]) == policies
    for policy, own in evaluation.groupby("policy"):
        assert set(map(tuple, own[KEY].to_numpy())) == test, policy
        assert len(own) == len(test), policy
    assert set(evaluation["split"]) == {"test"}


def test_exactly_the_timed_subset_has_times(evaluation, pairs, manifest) -> None:
    per_domain = manifest["config"]["evaluate"]["timed_prompts_per_domain"]
    test = pairs[pairs["split"] == "test"].sort_values("prompt_id")
    expected = set(test.groupby("domain").head(per_domain)["prompt_id"])
    for policy, own in evaluation.groupby("policy"):
        timed = own["decode_s"].notna()
        assert set(own.loc[timed, "prompt_id"]) == expected, policy
        for name in ("prefill_s", "select_s"):
            assert (own[name].notna() == timed).all(), (policy, name)
        assert (own.loc[timed, ["decode_s", "prefill_s"]] > 0).all(axis=None), policy


def test_rounds_add_up(evaluation) -> None:
    for row in evaluation.itertuples():
        assert row.num_rounds == len(row.num_committed) == len(row.block_sizes)
        assert row.num_tokens == sum(map(int, row.num_committed))
        assert all(1 <= b <= row.block_size for b in row.block_sizes)
    ar = evaluation[evaluation["policy"].isin(["ar", "ar_control"])]
    assert (ar["num_rounds"] == ar["num_tokens"]).all()


def test_policies_choose_what_they_should(evaluation, pairs, folder, variant) -> None:
    chosen = evaluation.set_index(["policy", *KEY]).sort_index()["block_size"]
    predictions = read_table(
        folder / f"selector/{variant}/default/predictions.parquet", PREDICTIONS
    ).set_index(KEY)["predicted_block_size"]
    best = pairs.set_index(KEY)["best_block_size"]
    for policy, expected in (("blockpilot", predictions), ("oracle", best)):
        own = chosen.loc[policy]
        assert (own == expected.loc[own.index]).all(), policy
    train = pairs[pairs["split"] == "train"]
    mean = dict(
        zip(train["block_sizes"].iloc[0], np.mean(as_lists(train["tau_by_block_size"]), 0),
            strict=True)
    )  # fmt: skip
    best_fixed = max(train["candidates"].iloc[0], key=lambda b: (mean[b], -b))
    assert set(chosen.loc["best_fixed"]) == {best_fixed}


def test_rounds_of_fixed_sizes_are_those_of_the_sweep(evaluation, sweep) -> None:
    """Timed rows were decoded, the others looked up: both must repeat the replayed sweep."""
    fixed = evaluation[evaluation["policy"].str.startswith("fixed:")]
    both = fixed.merge(
        sweep, on=[*KEY, "block_size"], suffixes=("", "_sweep"), validate="one_to_one"
    )
    assert len(both) == len(fixed)
    lists = as_lists(both["num_committed"]), as_lists(both["num_committed_sweep"])
    equal = pd.Series([mine == swept for mine, swept in zip(*lists, strict=True)])
    timed = both["decode_s"].notna()
    assert equal[~timed].all()
    assert equal[timed].mean() >= LEAST_EQUAL_SHARE
    assert (both["method"] == timed.map({True: "live", False: "replay"})).all()
    # Only what was decoded has a text to compare.
    assert (both["equals_ar"].notna() == timed).all()
    assert both.loc[timed, "equals_ar"].mean() >= LEAST_EQUAL_SHARE


# Tables


def test_the_main_table_has_all_policies_groups_and_variants(folder, prompts) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    assert set(main["decode"]) == set(VARIANTS)
    assert set(main["group"]) == {"average", *DOMAINS, "human_eval"}
    for variant, own in main.groupby("decode"):
        evaluation = read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)
        policies = set(evaluation["policy"])
        assert all(set(rows["policy"]) == policies for _, rows in own.groupby("group"))
        located = evaluation.merge(prompts[["prompt_id", "dataset"]], on="prompt_id")
        inside = located[located["dataset"] != "human_eval"]
        for policy, rows in own.set_index("group").groupby("policy"):
            mine = inside[inside["policy"] == policy]
            n = rows["n"]
            assert n["average"] == n[list(DOMAINS)].sum() == len(mine)
            tau = (mine["num_tokens"] / mine["num_rounds"]).mean()
            assert rows.loc["average", "tau_mean"] == pytest.approx(tau, rel=1e-12)
            pooled = mine["num_tokens"].sum() / mine["num_rounds"].sum()
            assert rows.loc["average", "tau_pooled"] == pytest.approx(pooled, rel=1e-12)


def test_speedups_are_ratios_of_pooled_times(folder, prompts) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    main = main.set_index(["decode", "group", "policy"]).sort_index()
    for variant in VARIANTS:
        rows = read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)
        rows = rows.merge(prompts[["prompt_id", "dataset"]], on="prompt_id")
        rows = rows[(rows["dataset"] != "human_eval") & rows["decode_s"].notna()]
        rows = rows.assign(spent_s=rows["decode_s"] + rows["select_s"])
        sums = rows.groupby("policy")[["spent_s", "num_tokens"]].sum()
        tpot_s = sums["spent_s"] / sums["num_tokens"]
        own = main.loc[variant, "average"]
        np.testing.assert_allclose(own["tpot_s"], tpot_s[own.index], rtol=1e-9)
        np.testing.assert_allclose(own["speedup"], tpot_s["ar"] / tpot_s[own.index], rtol=1e-9)


def test_bounds_are_marked(folder) -> None:
    main = pd.read_csv(folder / "tables/main.csv")
    assert set(main.loc[main["is_bound"], "policy"]) == {"oracle"}
    text = (folder / "tables/main.md").read_text(encoding="utf-8")
    assert "oracle (bound)" in text
    assert "ar_control" in text


def test_the_other_tables_count_what_there_is(folder, prompts, swept, candidates) -> None:
    tau = pd.read_csv(folder / "tables/tau_by_block_size.csv")
    assert set(tau["block_size"]) == set(swept)
    assert set(tau["group"]) == {"average", *DOMAINS, "human_eval"}
    best = pd.read_csv(folder / "tables/best_block_size.csv")
    shares = best.groupby(["decode", "group", "among"])["share"].sum()
    np.testing.assert_allclose(shares, 1, rtol=1e-12)
    assert set(best.loc[best["among"] == "candidates", "block_size"]) == set(candidates)
    counts = pd.read_csv(folder / "tables/datasets.csv").set_index(["dataset", "split"])
    expected = prompts.groupby(["dataset", "split"])["prompt_id"].nunique()
    assert counts["prompts"].to_dict() == expected.to_dict()
