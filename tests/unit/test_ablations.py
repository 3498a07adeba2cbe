from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from blockpilot.ablations import ablation_table, score_sizes
from blockpilot.errors import BlockPilotError
from blockpilot.knobs import KNOBS, Setting, distinct_settings, list_settings

BASE = Setting(radius=1, depth=2, width=8, features="raw")
WIDE = replace(BASE, width=16)
VALUES = {"radius": [1], "depth": [2], "width": [8, 16], "features": ["raw"]}
# Tau of sizes 3, 4 and 5 on four test prompts and a training prompt, and seconds of the first two.
TAUS = {
    "p1": (2.0, 4.0, 3.0),
    "p2": (2.0, 3.0, 5.0),
    "p3": (1.0, 2.0, 2.0),
    "p4": (4.0, 2.0, 1.0),
    "t1": (1.0, 2.0, 3.0),
}
SECONDS = {"ar": 4.0, "best_fixed": 2.0, "fixed:3": 2.5, "fixed:4": 2.0, "fixed:5": 1.0}
TIMED = ("p1", "p2")


def split_of(prompt: str) -> str:
    return "train" if prompt.startswith("t") else "test"


def make_prompts() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "prompt_id": list(TAUS),
            "conversation_id": [f"c{prompt}" for prompt in TAUS],
            "dataset": "sums",
            "domain": "arithmetic",
            "split": [split_of(prompt) for prompt in TAUS],
        }
    )


def make_pairs() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"prompt_id": p, "seed": 0, "block_sizes": [3, 4, 5], "tau_by_block_size": list(taus)}
            for p, taus in TAUS.items()
        ]
    )


def make_evaluation() -> pd.DataFrame:
    rows = []
    for prompt in TAUS:
        for policy, decode_s in SECONDS.items():
            size = int(policy[-1]) if policy.startswith("fixed:") else 4
            row = {"policy": policy, "prompt_id": prompt, "seed": 0, "block_size": size}
            timed = prompt in TIMED
            row |= {"decode_s": decode_s if timed else None, "select_s": 0.0 if timed else None}
            rows.append(row | {"num_tokens": 10})
    return pd.DataFrame(rows)


def make_runs(choices: dict[tuple[Setting, int], dict[str, int]]) -> pd.DataFrame:
    best = {"p1": 4, "p2": 5, "p3": 4, "p4": 3, "t1": 5}
    rows = [
        {knob: getattr(setting, knob) for knob in KNOBS}
        | {"training_seed": seed, "prompt_id": p, "seed": 0, "split": split_of(p)}
        | {"best_block_size": best[p], "predicted_block_size": size}
        for (setting, seed), own in choices.items()
        for p, size in own.items()
    ]
    return pd.DataFrame(rows)


def make_overhead(settings=(BASE, WIDE)) -> pd.DataFrame:
    rows = [
        {"part": "selector", **{k: getattr(s, k) for k in KNOBS}}
        | {"median_s": 0.25 * index, "num_parameters": 100 + index}
        for index, s in enumerate(settings)
    ]
    return pd.DataFrame([*rows, {"part": "target", "median_s": 9.0}])


FOURS = dict.fromkeys(TAUS, 4)
RIGHT = {"p1": 4, "p2": 5, "p3": 4, "p4": 3, "t1": 5}


def make_table(choices=None, **changes) -> pd.DataFrame:
    choices = choices or {
        (BASE, 0): FOURS,
        (BASE, 1): FOURS,
        (WIDE, 0): RIGHT,
        (WIDE, 1): FOURS,
    }
    arguments = {
        "runs": make_runs(choices),
        "listed": list_settings(BASE, VALUES),
        "base": BASE,
        "scores": score_sizes(make_pairs(), make_evaluation(), best_fixed=4),
        "overhead": make_overhead(),
        "prompts": make_prompts(),
        "resamples": 200,
    }
    return ablation_table(**(arguments | changes))


def row_of(table: pd.DataFrame, ablation: str, value: str) -> pd.Series:
    [row] = table[
        (table["group"] == "average") & (table["ablation"] == ablation) & (table["value"] == value)
    ].to_dict("records")
    return pd.Series(row)


# Settings


def test_every_knob_is_turned_alone_and_the_default_is_always_among_its_values() -> None:
    values = {"radius": [3, 2], "depth": [1], "width": [16, 8], "features": ["softmax"]}
    listed = list_settings(BASE, values)
    turned = [(knob, getattr(setting, knob)) for knob, setting in listed]
    assert turned == [
        ("radius", 1),
        ("radius", 2),
        ("radius", 3),
        ("depth", 1),
        ("depth", 2),
        ("width", 8),
        ("width", 16),
        ("features", "softmax"),
        ("features", "raw"),
    ]
    for knob, setting in listed:
        assert replace(setting, **{knob: getattr(BASE, knob)}) == BASE
    assert len(distinct_settings(listed)) == 1 + 2 + 1 + 1 + 1


# What a size gives


def test_scores_hold_tau_of_every_size_and_times_where_they_were_measured() -> None:
    scores = score_sizes(make_pairs(), make_evaluation(), best_fixed=4)
    assert len(scores) == 5 * 3
    first = scores[(scores["prompt_id"] == "p1") & (scores["block_size"] == 5)].iloc[0]
    assert (first["tau"], first["tau_best_fixed"], first["decode_s"]) == (3.0, 4.0, 1.0)
    assert (first["ar_s"], first["ar_tokens"], first["best_fixed_s"]) == (4.0, 10, 2.0)
    assert scores.loc[scores["prompt_id"] == "p3", ["decode_s", "ar_s"]].isna().all(axis=None)


# The table


def test_gains_average_training_seeds_inside_each_prompt() -> None:
    row = row_of(make_table(), "width", "16")
    # Right everywhere: 4, 5, 2, 4; always 4: 4, 3, 2, 2. Means 3.75 and 2.75.
    assert row["tau_mean"] == pytest.approx(3.25)
    assert row["tau_gain_over_best_fixed"] == pytest.approx(0.5)
    assert row["tau_gain_over_default"] == pytest.approx(0.5)
    assert (row["tau_gain_seeds_low"], row["tau_gain_seeds_high"]) == (0.0, 1.0)
    assert row["num_training_seeds"] == 2
    assert row["tau_gain_over_default_low"] < 0.5 < row["tau_gain_over_default_high"]
    assert row["train_accuracy"] == 0.5
    assert row["test_accuracy"] == pytest.approx((4 + 2) / 8)


def test_the_default_gains_nothing_over_itself_and_is_marked_in_every_ablation() -> None:
    table = make_table()
    defaults = table[table["is_default"] & (table["group"] == "average")]
    assert list(defaults["ablation"]) == list(KNOBS)
    assert (defaults["tau_gain_over_default"] == 0).all()
    assert defaults["tau_mean"].nunique() == 1


def test_time_is_that_of_the_chosen_size_and_of_choosing() -> None:
    table = make_table()
    # `ar`: 8 s for 20 tokens. Always 4: 2 s each, no choosing. Best fixed: 2 s each.
    base = row_of(table, "width", "8")
    assert base["speedup"] == pytest.approx(2.0)
    assert base["speedup_best_fixed"] == pytest.approx(2.0)
    # One seed takes 2 + 1 s, the other 2 + 2 s, and each of the four choices 0.25 s.
    wide = row_of(table, "width", "16")
    assert wide["speedup"] == pytest.approx(4 * 4.0 / (7 + 4 * 0.25))
    assert (base["n"], base["n_timed"]) == (4, 2)
    assert wide["select_ms"] == 250
    assert wide["num_parameters"] == 101


def test_without_timed_rows_there_is_no_speedup() -> None:
    evaluation = make_evaluation().assign(decode_s=None)
    table = make_table(scores=score_sizes(make_pairs(), evaluation, best_fixed=4))
    assert math.isnan(table["speedup"].iloc[0])
    assert math.isnan(table["speedup_best_fixed"].iloc[0])
    assert (table["n_timed"] == 0).all()


def test_out_of_domain_prompts_never_enter_the_average() -> None:
    prompts = make_prompts()
    prompts.loc[prompts["prompt_id"] == "p4", "dataset"] = "other"
    table = make_table(prompts=prompts, out_of_domain=["other"])
    assert set(table["group"]) == {"average", "arithmetic", "other"}
    assert row_of(table, "width", "8")["tau_mean"] == pytest.approx((4 + 3 + 2) / 3)


def test_a_size_that_was_not_swept_is_an_error() -> None:
    choices = {(BASE, 0): FOURS | {"p1": 7}, (WIDE, 0): FOURS}
    with pytest.raises(BlockPilotError, match=r"'p1'.*7.*extra_block_sizes"):
        make_table(choices)


def test_a_setting_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(BlockPilotError, match=r"width=16.*Measure it again"):
        make_table(overhead=make_overhead([BASE]))


def test_a_setting_that_was_not_trained_is_an_error() -> None:
    with pytest.raises(BlockPilotError, match=r"width=16.*train_ablations"):
        make_table({(BASE, 0): FOURS})
