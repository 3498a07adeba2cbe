import numpy as np
import pandas as pd
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.metrics import (
    best_size_distribution,
    check_leakage,
    summarise_policies,
    tau_by_block_size,
    tau_by_prompt,
)
from blockpilot.statistics import wilson_interval
from blockpilot.tables import MAIN_COLUMNS, REPORTED_HEADING, main_table, write_csv, write_markdown


def make_prompts(count, dataset="sums", domain="arithmetic", split="test"):
    return pd.DataFrame(
        {
            "prompt_id": [f"{dataset}-{i}" for i in range(count)],
            "conversation_id": [f"{dataset}-c{i}" for i in range(count)],
            "dataset": dataset,
            "domain": domain,
            "split": split,
        }
    )


def make_rows(policy, prompts, rounds, seconds=None, block_size=4):
    """Return EVALUATION rows: `rounds` and `seconds` hold a list and a number per prompt."""
    seconds = [None] * len(rounds) if seconds is None else seconds
    return pd.DataFrame(
        {
            "policy": policy,
            "prompt_id": prompts["prompt_id"],
            "seed": 0,
            "split": prompts["split"],
            "domain": prompts["domain"],
            "method": "live",
            "block_size": block_size,
            "block_sizes": [[4] * len(r) for r in rounds],
            "num_committed": rounds,
            "num_rounds": [len(r) for r in rounds],
            "num_tokens": [sum(r) for r in rounds],
            "decode_s": pd.Series(seconds, dtype=float),
            "prefill_s": 0.1,
            "select_s": [None if s is None else 0.0 for s in seconds],
            "equals_ar": None if policy == "ar" else True,
        }
    )


PROMPTS = make_prompts(3)


def make_evaluation():
    """Three prompts of 6, 4 and 2 tokens; the first two are timed."""
    return pd.concat(
        [
            make_rows("ar", PROMPTS, [[1] * 6, [1] * 4, [1] * 2], [6.0, 4.0, None], 1),
            make_rows("best_fixed", PROMPTS, [[2, 2, 2], [2, 2], [2]], [3.0, 2.0, None]),
            make_rows("blockpilot", PROMPTS, [[3, 3], [2, 2], [2]], [2.5, 2.0, None], 5),
            make_rows("oracle", PROMPTS, [[6], [4], [2]], None, 6),
        ],
        ignore_index=True,
    )


def summarise(evaluation, prompts=PROMPTS, **settings):
    return summarise_policies(evaluation, prompts, resamples=200, **settings)


def row_of(summary, policy, group="average"):
    return summary.set_index(["group", "policy"]).loc[(group, policy)]


def test_values_by_hand():
    row = row_of(summarise(make_evaluation()), "blockpilot")
    assert (row["n"], row["n_timed"]) == (3, 2)
    assert row["tau_mean"] == pytest.approx((3 + 2 + 2) / 3)
    assert row["tau_pooled"] == pytest.approx(12 / 5)
    assert row["tpot_s"] == pytest.approx(4.5 / 10)
    assert row["speedup"] == pytest.approx(10 / 4.5)
    assert row["tau_gain_over_best_fixed"] == pytest.approx(1 / 3)
    assert row["speedup_over_best_fixed"] == pytest.approx(5 / 4.5)
    assert row["equal_text"] == "3/3"
    assert row["block_size_mean"] == 5
    assert row["tau_mean_low"] <= row["tau_mean"] <= row["tau_mean_high"]


def test_ar_is_the_unit_of_everything():
    row = row_of(summarise(make_evaluation()), "ar")
    for name in ("tau_mean", "tau_pooled", "speedup"):
        assert row[[name, f"{name}_low", f"{name}_high"]].tolist() == [1, 1, 1]
    assert row["equal_text"] == ""


def test_bounds_are_marked_and_untimed_rows_have_no_speedup():
    summary = summarise(make_evaluation())
    assert summary.loc[summary["is_bound"], "policy"].unique().tolist() == ["oracle"]
    row = row_of(summary, "oracle")
    assert row["n_timed"] == 0
    assert row[["tpot_s", "speedup", "speedup_low"]].isna().all()
    assert row["tau_mean"] == 4


def test_selecting_costs_time():
    evaluation = make_evaluation()
    evaluation.loc[evaluation["policy"] == "blockpilot", "select_s"] = 0.25
    assert row_of(summarise(evaluation), "blockpilot")["tpot_s"] == pytest.approx(5.0 / 10)
    evaluation.loc[evaluation["policy"] == "blockpilot", "select_s"] = None
    with pytest.raises(BlockPilotError, match="select_s of blockpilot"):
        summarise(evaluation)


def test_requests_without_a_round_have_no_tau():
    rounds = [[], [2, 2], [4]]
    evaluation = pd.concat([make_rows(name, PROMPTS, rounds) for name in ("ar", "best_fixed")])
    row = row_of(summarise(evaluation), "best_fixed")
    assert (row["n"], row["tau_mean"]) == (2, 3)


def test_per_round_policies_report_the_mean_of_their_rounds():
    evaluation = make_evaluation()
    rows = evaluation["policy"] == "blockpilot"
    evaluation.loc[rows, "block_size"] = None
    evaluation.loc[rows, "block_sizes"] = pd.Series([[2, 4], [6, 8], [5]], index=rows.index[rows])
    assert row_of(summarise(evaluation), "blockpilot")["block_size_mean"] == pytest.approx(5)


def make_gap_evaluation(headroom):
    prompts = make_prompts(len(headroom))
    fixed = [[10]] * len(headroom)
    parts = [
        make_rows("ar", prompts, [[1]] * len(headroom)),
        make_rows("best_fixed", prompts, fixed),
        make_rows("half", prompts, [[10 + h // 2] for h in headroom]),
        make_rows("oracle", prompts, [[10 + h] for h in headroom]),
    ]
    return pd.concat(parts, ignore_index=True), prompts


def test_gap_closed_where_the_headroom_is_known():
    summary = summarise(*make_gap_evaluation([2, 4, 6, 4, 2, 6]))
    for policy, share in {"best_fixed": 0, "half": 0.5, "oracle": 1}.items():
        row = row_of(summary, policy)
        assert row[["gap_closed", "gap_closed_low", "gap_closed_high"]].tolist() == pytest.approx(
            [share] * 3
        )


def test_gap_closed_is_empty_where_the_headroom_may_be_zero():
    summary = summarise(*make_gap_evaluation([0, 0, 0, 0, 0, 6]))
    assert row_of(summary, "oracle")["tau_mean"] == 11
    assert summary["gap_closed"].isna().all()


def test_gap_closed_is_empty_without_an_oracle():
    evaluation, prompts = make_gap_evaluation([2, 4, 6])
    assert (
        summarise(evaluation[evaluation["policy"] != "oracle"], prompts)["gap_closed"].isna().all()
    )


def test_out_of_domain_prompts_never_enter_the_average():
    code = make_prompts(2, "loops", "code")
    poems = make_prompts(2, "poems", "verse")
    prompts = pd.concat([make_prompts(2), code, poems], ignore_index=True)
    rounds = [[2], [2], [4], [4], [9], [9]]
    evaluation = pd.concat([make_rows(name, prompts, rounds) for name in ("ar", "best_fixed")])
    summary = summarise(evaluation, prompts, out_of_domain=["poems"])
    assert summary["group"].unique().tolist() == ["average", "arithmetic", "code", "poems"]
    means = [row_of(summary, "ar", group)["tau_mean"] for group in summary["group"].unique()]
    assert means == [3, 2, 4, 9]


def test_a_misspelt_out_of_domain_data_set_is_an_error():
    with pytest.raises(BlockPilotError, match="'poem'"):
        summarise(make_evaluation(), out_of_domain=["poem"])


def test_other_splits_are_left_out():
    prompts = pd.concat([PROMPTS, make_prompts(2, "more", split="train")], ignore_index=True)
    rounds = [[2], [2], [2], [8], [8]]
    evaluation = pd.concat([make_rows(name, prompts, rounds) for name in ("ar", "best_fixed")])
    assert row_of(summarise(evaluation, prompts), "ar")["tau_mean"] == 2


def test_a_policy_that_misses_prompts_is_an_error():
    evaluation = make_evaluation()
    gone = (evaluation["policy"] == "blockpilot") & (evaluation["prompt_id"] == "sums-1")
    with pytest.raises(BlockPilotError, match="'blockpilot' lacks 1 of 3 prompts, first 'sums-1'"):
        summarise(evaluation[~gone])


def test_a_policy_timed_on_other_prompts_is_an_error():
    evaluation = make_evaluation()
    easier = (evaluation["policy"] == "blockpilot") & (evaluation["prompt_id"] == "sums-0")
    evaluation.loc[easier, "decode_s"] = None
    with pytest.raises(BlockPilotError, match="'blockpilot' was timed on 1 rows"):
        summarise(evaluation)


def test_the_policies_of_comparison_must_be_there():
    evaluation = make_evaluation()
    with pytest.raises(BlockPilotError, match="best_fixed"):
        summarise(evaluation[evaluation["policy"] != "best_fixed"])


def test_row_order_changes_nothing():
    evaluation = make_evaluation()
    shuffled = evaluation.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(summarise(evaluation), summarise(shuffled))


def make_sweep(prompts, rounds_by_size):
    parts = [
        make_rows("sweep", prompts, rounds)[["prompt_id", "seed", "num_committed", "num_rounds"]]
        .assign(block_size=size, method="replay", tpot_s=None, equals_ar=True)
        for size, rounds in rounds_by_size.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_tau_by_block_size_by_hand():
    prompts = pd.concat([make_prompts(2), make_prompts(1, "old", split="train")], ignore_index=True)
    sweep = make_sweep(prompts, {1: [[1, 1], [1], [1]], 4: [[2], [3, 1, 2], [4]]})
    table = tau_by_block_size(sweep, prompts, resamples=100).set_index(["group", "block_size"])
    row = table.loc[("average", 4)]
    assert row["n"] == 2
    assert row["tau_mean"] == pytest.approx(2)
    assert row["tau_pooled"] == pytest.approx(8 / 4)
    assert table.loc[("arithmetic", 1), "tau_mean"] == 1
    both = tau_by_block_size(sweep, prompts, ("train", "test"), resamples=100)
    assert both["n"].tolist() == [3] * 4


def test_a_block_size_swept_on_fewer_prompts_is_an_error():
    sweep = make_sweep(PROMPTS, {1: [[1], [1], [1]], 4: [[2], [2], [2]]}).iloc[:-1]
    with pytest.raises(BlockPilotError, match="block_size 4 lacks 1 of 3"):
        tau_by_block_size(sweep, PROMPTS)


def test_tau_by_prompt_by_hand():
    prompts = pd.concat(
        [
            make_prompts(2, "loops", "code"),
            make_prompts(2),
            make_prompts(1, "poems", "code"),
            make_prompts(1, "old", "code", "train"),
        ],
        ignore_index=True,
    )
    rounds = [[3, 1], [4], [2], [], [1, 1], [9]]
    sweep = make_sweep(prompts, {8: rounds, 4: [[1] * sum(own) for own in rounds]})
    sweep.loc[sweep["prompt_id"] == "loops-1", "seed"] = 5
    table = tau_by_prompt(sweep, prompts, ["poems"])
    assert table.columns.tolist() == ["group", "prompt_id", "seed", "block_size", "tau"]
    # "sums-1" has no round, "old-0" is for training.
    assert table.to_numpy().tolist() == [
        ["arithmetic", "sums-0", 0, 4, 1],
        ["arithmetic", "sums-0", 0, 8, 2],
        ["code", "loops-0", 0, 4, 1],
        ["code", "loops-0", 0, 8, 2],
        ["code", "loops-1", 5, 4, 1],
        ["code", "loops-1", 5, 8, 4],
        ["poems", "poems-0", 0, 4, 1],
        ["poems", "poems-0", 0, 8, 1],
    ]
    trained = tau_by_prompt(sweep, prompts, ["poems"], split="train")
    assert trained["tau"].tolist() == [1, 9]
    with pytest.raises(BlockPilotError, match="block_size 4 lacks 1 of 5 requests"):
        tau_by_prompt(sweep.iloc[:-2], prompts)


def test_no_prompt_of_the_split_gives_no_row():
    sweep = make_sweep(PROMPTS, {4: [[1], [1], [1]]})
    assert tau_by_prompt(sweep, PROMPTS, split="validation").empty


def make_pairs(prompts, best, is_tie=False):
    taus = [[1.0, 3.0, 3.0] if b == 3 else [2.0, 1.0, 1.5] for b in best]
    return pd.DataFrame(
        {
            "prompt_id": prompts["prompt_id"],
            "seed": 0,
            "split": prompts["split"],
            "domain": prompts["domain"],
            "block_sizes": [[2, 3, 4]] * len(prompts),
            "tau_by_block_size": taus,
            "candidates": [[3, 4]] * len(prompts),
            "best_block_size": [3 if b == 3 else 4 for b in best],
            "best_block_size_swept": best,
            "is_tie": is_tie,
        }
    )


def test_best_size_distribution_by_hand():
    pairs = make_pairs(PROMPTS, [3, 3, 2], is_tie=[True, True, False])
    table = best_size_distribution(pairs, PROMPTS).query("group == 'average'")
    swept, candidates = table[table["among"] == "swept"], table[table["among"] == "candidates"]
    assert swept["block_size"].tolist() == [2, 3, 4]
    assert swept["count"].tolist() == [1, 2, 0]
    assert swept["n_ties"].tolist() == [0, 2, 0]
    assert candidates["share"].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert table.columns.tolist()[3:] == ["count", "share", "share_low", "share_high", "n_ties"]
    # Wilson (1927): the ends w solve (w - share)^2 = 1.96^2 w (1 - w) / n.
    for row in table.itertuples():
        for end in (row.share_low, row.share_high):
            assert (end - row.share) ** 2 == pytest.approx(1.95996**2 * end * (1 - end) / 3, 1e-4)
        assert row.share_low <= row.share + 1e-15 and row.share - 1e-15 <= row.share_high
    never = swept.set_index("block_size").loc[4]
    assert never["share_low"] == pytest.approx(0, abs=1e-15)
    assert never["share_high"] == pytest.approx(3.8415 / (3 + 3.8415), 1e-4)


def test_turns_of_one_conversation_do_not_narrow_the_interval():
    prompts = make_prompts(6).assign(conversation_id=["c0", "c0", "c1", "c1", "c2", "c2"])
    table = best_size_distribution(make_pairs(prompts, [3, 3, 3, 3, 2, 2]), prompts)
    row = table.query("group == 'average' and among == 'swept' and block_size == 3").iloc[0]
    assert row["count"] == 4
    assert (row["share_low"], row["share_high"]) == pytest.approx(wilson_interval(2 / 3, 3))


def make_leakage_frames(agreements, count=60, is_tie=False):
    prompts = make_prompts(count)
    oracle = np.where(np.arange(count) % 2, 4, 5)
    chosen = np.where(np.arange(count) < agreements, oracle, 3)
    rounds = [[2]] * count
    evaluation = pd.concat(
        [
            make_rows("oracle", prompts, rounds, None, oracle),
            make_rows("blockpilot", prompts, rounds, None, chosen),
        ]
    )
    return evaluation, make_pairs(prompts, [2] * count, is_tie), prompts


@pytest.mark.parametrize("agreements", [59, 60])
def test_a_policy_that_repeats_the_oracle_stops_the_run(agreements):
    with pytest.raises(BlockPilotError, match="'blockpilot' chooses as the oracle"):
        check_leakage(*make_leakage_frames(agreements))


def test_honest_runs_pass():
    check_leakage(*make_leakage_frames(58))
    check_leakage(*make_leakage_frames(40, count=40))
    check_leakage(*make_leakage_frames(60, is_tie=True))


def test_a_prompt_in_train_and_test_stops_the_run():
    evaluation, pairs, prompts = make_leakage_frames(10)
    pairs.loc[3, "split"] = "train"
    with pytest.raises(BlockPilotError, match=r"prompt_id in both train and test.*'sums-3'"):
        check_leakage(evaluation, pairs, prompts)


def test_a_conversation_in_train_and_test_stops_the_run():
    evaluation, pairs, prompts = make_leakage_frames(10)
    turn = prompts.iloc[[5]].assign(prompt_id="turn-2", split="train")
    with pytest.raises(BlockPilotError, match=r"conversation_id in both.*'sums-c5'"):
        check_leakage(evaluation, pairs, pd.concat([prompts, turn]))


def test_the_main_table_reads_well(tmp_path):
    summary = summarise(make_evaluation())
    table = main_table(summary)
    assert list(table.columns) == list(MAIN_COLUMNS.values())
    oracle, ar = table[table["policy"] == "oracle (bound)"], table[table["policy"] == "ar"]
    assert oracle["TPOT (ms)"].tolist() == ["", ""]
    assert ar["TPOT (ms)"].iloc[0] == "1000 [1000, 1000]"
    assert ar["tau_mean"].iloc[0] == "1.00 [1.00, 1.00]"
    path = tmp_path / "main.md"
    write_markdown(table, path, caption="Pocket | T0", reported=[{"target": "X", "tau": 6.31}])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "Pocket | T0"
    assert lines.index(f"**{REPORTED_HEADING}**") > lines.index(
        next(line for line in lines if "oracle (bound)" in line)
    )
    assert lines[-1] == "| X | 6.31 |"


def test_columns_choose_and_rename(tmp_path):
    frame = pd.DataFrame(
        {"name": ["a|b"], "tau": [4.2149], "tau_low": [4.101], "tau_high": [4.3333], "tiny": [0.0]}
    )
    write_markdown(frame, tmp_path / "t.md", {"name": "policy", "tau": "τ"})
    assert (tmp_path / "t.md").read_text(encoding="utf-8") == (
        "| policy | τ |\n| --- | --- |\n| a\\|b | 4.21 [4.10, 4.33] |\n"
    )


def test_csv_keeps_every_digit_and_leaves_cells_empty(tmp_path):
    write_csv(pd.DataFrame({"a": [1 / 3, np.nan]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == 'a\n0.3333333333333333\n""\n'
