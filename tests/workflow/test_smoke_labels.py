"""The smoke run: splits, trajectories, rounds and labels are consistent with each other."""

from __future__ import annotations

import json

import numpy as np
from smoke_facts import DATASETS, KEY, LEAST_EQUAL_SHARE

from blockpilot.records import CONVERSATIONS, PREDICTIONS, read_table

# Splits, rounds, labels


def test_no_prompt_and_no_conversation_is_in_two_splits(folder, prompts) -> None:
    for column in ("prompt_id", "conversation_id"):
        assert prompts.groupby(column)["split"].nunique().max() == 1, column
    assert set(prompts["split"]) == {"train", "validation", "test"}
    assert set(prompts.loc[prompts["dataset"] == "human_eval", "split"]) == {"test"}
    for dataset in DATASETS:
        source = read_table(folder / f"conversations/{dataset}.parquet", CONVERSATIONS)
        own = prompts[prompts["dataset"] == dataset]
        turns = dict(zip(source["conversation_id"], source["turns"].map(len), strict=True))
        assert own.groupby("conversation_id").size().to_dict() == turns


def test_every_prompt_has_a_trajectory(trajectories, prompts) -> None:
    assert sorted(trajectories["prompt_id"]) == sorted(prompts["prompt_id"])
    lengths = trajectories["output_ids"].map(len)
    assert lengths.between(1, 32).all()
    assert (lengths[trajectories["stop_reason"] == "length"] == 32).all()
    assert set(trajectories["stop_reason"]) <= {"stop", "length"}


def test_tau_is_committed_tokens_per_round(sweep) -> None:
    assert set(sweep["method"]) == {"replay"}
    assert sweep["tpot_s"].isna().all()
    for row in sweep.itertuples():
        assert row.num_rounds == len(row.num_committed)
        assert all(1 <= count <= row.block_size for count in row.num_committed)
        if row.num_rounds:
            assert row.tau == sum(map(int, row.num_committed)) / row.num_rounds
        else:
            assert np.isnan(row.tau)


def test_text_equals_the_trajectory(sweep, trajectories, swept, variant, record_property) -> None:
    assert len(sweep) == len(swept) * len(trajectories)
    rows = sweep.merge(trajectories[[*KEY, "output_ids"]], on=KEY, validate="many_to_one")
    share = rows["equals_ar"].mean()
    record_property(f"equals_ar_{variant}", share)
    print(f"{variant}: {rows['equals_ar'].sum()} of {len(rows)} texts equal the trajectory")
    assert share >= LEAST_EQUAL_SHARE
    for row in rows[rows["equals_ar"]].itertuples():
        assert sum(map(int, row.num_committed)) == len(row.output_ids) - 1


def test_labels_are_the_best_candidates(sweep, pairs, trajectories, candidates, swept) -> None:
    with_a_round = trajectories["output_ids"].map(len) > 1
    assert sorted(pairs["prompt_id"]) == sorted(trajectories.loc[with_a_round, "prompt_id"])
    tau = {
        (row.prompt_id, row.seed, row.block_size): np.sum(row.num_committed) / row.num_rounds
        for row in sweep[sweep["num_rounds"] > 0].itertuples()
    }
    for row in pairs.itertuples():
        own = {b: tau[row.prompt_id, row.seed, b] for b in swept}
        assert list(row.block_sizes) == swept
        assert list(row.candidates) == candidates
        np.testing.assert_array_equal(row.tau_by_block_size, np.float32(list(own.values())))
        highest = max(own[b] for b in candidates)
        winners = [b for b in candidates if own[b] == highest]
        assert row.best_block_size == winners[0]
        assert row.class_index == candidates.index(winners[0])
        assert row.is_tie == (len(winners) > 1)
        assert row.best_block_size_swept == min(swept, key=lambda b: (-own[b], b))


def test_pairs_carry_the_states_of_the_trajectories(pairs, trajectories, prompts) -> None:
    both = pairs.merge(trajectories, on=KEY, suffixes=("", "_ar"), validate="one_to_one")
    assert len(both) == len(pairs)
    for name in ("prefill_logits", "prefill_hidden"):
        np.testing.assert_array_equal(np.stack(both[name]), np.stack(both[f"{name}_ar"]))
    located = pairs.merge(prompts, on="prompt_id", suffixes=("", "_prompt"))
    for name in ("split", "domain"):
        assert (located[name] == located[f"{name}_prompt"]).all()


def test_the_selector_chooses_candidates(folder, variant, pairs, candidates) -> None:
    selector = folder / f"selector/{variant}/default"
    config = json.loads((selector / "config.json").read_text())
    assert config["block_sizes"] == candidates
    assert config["fallback_block_size"] in candidates
    predictions = read_table(selector / "predictions.parquet", PREDICTIONS)
    assert set(predictions["predicted_block_size"]) <= set(candidates)
    both = predictions.merge(pairs, on=KEY, suffixes=("", "_pairs"), validate="one_to_one")
    assert len(both) == len(pairs) == len(predictions)
    assert (both["best_block_size"] == both["best_block_size_pairs"]).all()
