"""The selector's tables: training curves, predictions with their tau, and what they lose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from group_cases import make_prompts

from blockpilot.errors import BlockPilotError
from blockpilot.predictions import prediction_table, regret_table, training_table
from blockpilot.statistics import bootstrap_weights

SWEPT = [4, 6, 8, 10]
PROMPTS = pd.concat(
    [make_prompts(4, turns=2), make_prompts(2, dataset="other", domain="other")],
    ignore_index=True,
)
# Per prompt: tau at every swept size, best and predicted size, whether the best is a tie.
CASES = {
    "sums-00": ([1, 2, 4, 3], 8, 8, False),
    "sums-01": ([1, 3, 3, 2], 6, 8, True),
    "sums-02": ([1, 2, 4, 2], 8, 10, False),
    "sums-03": ([1, 5, 2, 2], 6, 4, False),
    "other-00": ([1, 2, 2, 2], 6, 6, True),
    "other-01": ([1, 1, 2, 3], 10, 8, False),
}


def make_predictions(split="test"):
    rows = [
        {"prompt_id": prompt, "seed": 0, "split": split, "best_block_size": best,
         "predicted_block_size": predicted, "probabilities": [0.5, 0.25, 0.25]}
        for prompt, (_, best, predicted, _) in CASES.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def make_pairs():
    rows = [
        {"prompt_id": prompt, "seed": 0, "best_block_size": best, "is_tie": is_tie,
         "block_sizes": np.array(SWEPT, np.int16), "tau_by_block_size": np.array(taus, np.float32)}
        for prompt, (taus, best, _, is_tie) in CASES.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)[::-1]


def make_history():
    return pd.DataFrame(
        {
            "epoch": [1, 2],
            "train_loss": [1.5, 0.5],
            "validation_loss": [1.75, 1.25],
            "train_accuracy": [0.25, 0.75],
            "validation_accuracy": [0.125, 0.5],
        }
    )


def make_table():
    return prediction_table(make_predictions(), make_pairs(), PROMPTS, ["other"])


def test_training_curves_come_with_what_needs_no_feature():
    predictions = make_predictions("train")
    # Best sizes 8, 6, 8 in training; 6, 6, 10 in validation.
    predictions.loc[3:, "split"] = "validation"
    table = training_table(make_history(), predictions)
    pd.testing.assert_frame_equal(table[make_history().columns.tolist()], make_history())
    constant = {"n_train": 3, "n_validation": 3, "chance": 1 / 3}
    constant |= {"train_majority": 2 / 3, "validation_majority": 0}
    assert table[list(constant)].to_dict("records") == [constant] * 2


def test_the_smallest_of_equally_frequent_sizes_is_the_majority():
    predictions = make_predictions("train")
    predictions.loc[2:, "split"] = "validation"  # 8, 6; then 8, 6, 6, 10
    table = training_table(make_history(), predictions)
    assert table["validation_majority"].tolist() == [0.5, 0.5]


def test_without_validation_prompts_there_is_no_majority_of_them():
    table = training_table(make_history(), make_predictions("train"))
    assert table["n_validation"].tolist() == [0, 0]
    assert table["validation_majority"].isna().all()


def test_training_curves_need_training_prompts():
    with pytest.raises(BlockPilotError, match=r"split is \['test'\].*'train'"):
        training_table(make_history(), make_predictions())


def test_predictions_have_the_tau_of_both_sizes():
    table = make_table().set_index("prompt_id")
    # Groups in order, out-of-domain data sets last.
    assert table.index.tolist() == [f"sums-0{i}" for i in range(4)] + ["other-00", "other-01"]
    assert table["tau_predicted"].tolist() == [4, 3, 2, 1, 2, 2]
    assert table["tau_oracle"].tolist() == [4, 3, 4, 5, 2, 3]
    assert table["group"].tolist() == ["arithmetic"] * 4 + ["other"] * 2
    assert table["is_out_of_domain"].tolist() == [False] * 4 + [True] * 2
    assert table["is_tie"].tolist() == [case[3] for case in CASES.values()]
    assert table["conversation_id"].tolist()[:3] == ["sums-c0", "sums-c0", "sums-c1"]
    assert set(table["split"]) == {"test"} and set(table["seed"]) == {0}
    kept = make_predictions().set_index("prompt_id")[["best_block_size", "predicted_block_size"]]
    pd.testing.assert_frame_equal(table[kept.columns.tolist()], kept)


def test_predictions_for_other_labels_are_refused():
    pairs = make_pairs()
    pairs.loc[2, "best_block_size"] = 6
    with pytest.raises(BlockPilotError, match="sums-02"):
        prediction_table(make_predictions(), pairs, PROMPTS)
    with pytest.raises(BlockPilotError, match="sums-00"):
        prediction_table(make_predictions(), make_pairs()[:-1], PROMPTS)


def test_a_predicted_size_that_was_not_swept_is_refused():
    predictions = make_predictions()
    predictions.loc[1, "predicted_block_size"] = 7
    with pytest.raises(BlockPilotError, match=r"sums-01.*is 7.*\[4, 6, 8, 10\]"):
        prediction_table(predictions, make_pairs(), PROMPTS)


def test_regret_by_hand():
    table = regret_table(make_table(), resamples=200, seed=3).set_index("group")
    assert table.index.tolist() == ["average", "arithmetic", "other"]
    inside, outside = table.loc["average"], table.loc["other"]
    pd.testing.assert_series_equal(inside, table.loc["arithmetic"], check_names=False)
    assert (inside["n"], inside["n_clear"], outside["n"], outside["n_clear"]) == (4, 3, 2, 1)
    # Right: sums-00. The tie of sums-01 is predicted wrong, but loses nothing.
    assert inside["accuracy"] == 1 / 4 and inside["accuracy_clear"] == 1 / 3
    assert inside["share_without_regret"] == 2 / 4 and inside["regret"] == (0 + 0 + 2 + 4) / 4
    assert outside["accuracy"] == 1 / 2 and outside["accuracy_clear"] == 0
    assert outside["share_without_regret"] == 1 / 2 and outside["regret"] == 1 / 2
    # Conversations are drawn as a whole: (0, 0) loses 0 and (2, 4) loses 3 on average.
    weights = bootstrap_weights(["c0", "c0", "c1", "c1"], 200, 3)
    ends = np.quantile(weights @ [0, 0, 2, 4] / 4, [0.025, 0.975])
    assert [inside["regret_low"], inside["regret_high"]] == pytest.approx(ends)
    assert ends.tolist() == [0, 3]


def test_regret_without_interval_and_without_rows():
    alone = make_table()[:2]  # one conversation
    row = regret_table(alone, resamples=20).iloc[0]
    assert row["regret"] == 0 and np.isnan([row["regret_low"], row["accuracy_high"]]).all()
    assert regret_table(make_table(), split="validation").empty
    tied = regret_table(make_table()[1:2], resamples=20).iloc[0]
    assert tied["n_clear"] == 0 and np.isnan(tied["accuracy_clear"])
