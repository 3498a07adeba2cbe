from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from blockpilot.costs import overhead_table, policy_cost_table
from blockpilot.knobs import Setting

BASE = Setting(radius=2, depth=2, width=8, features="raw")


def make_overhead() -> pd.DataFrame:
    sizes = {"num_parameters": 10, "parameters_mb": 4.0, "activations_mb": 0.5, "n": 3}
    times = {"median_s": 0.002, "p10_s": 0.001, "p90_s": 0.004}
    selector = {"part": "selector", "component": "select", "radius": 2, "depth": 2, "width": 8}
    rows = [
        selector | {"features": "raw"},
        selector | {"features": "raw", "width": 16},
        {"part": "target", "component": "prefill"},
        {"part": "target", "component": "ar", "block_size": 1},
        {"part": "draft", "component": "fixed", "block_size": 8},
        {"part": "draft", "component": "round", "block_size": 8},
    ]
    return pd.DataFrame([row | sizes | times for row in rows]).astype({"block_size": "Int16"})


def test_components_are_named_in_drawing_order_with_their_units() -> None:
    table = overhead_table(make_overhead(), [replace(BASE, width=16), BASE], BASE)
    assert list(table["component"]) == [
        "select, default",
        "select, width = 16",
        "prefill",
        "one round, b = 8",
        "request, b = 8",
        "request, ar",
    ]
    assert list(table["part"]) == ["selector"] * 2 + ["target", "draft", "draft", "target"]
    first = table.iloc[0]
    assert (first["median_ms"], first["p10_ms"], first["p90_ms"]) == (2.0, 1.0, 4.0)
    assert (first["parameters_mb"], first["activations_mb"], first["n"]) == (4.0, 0.5, 3)


SECONDS = {
    "ar": (5.0, 7.0),
    "best_fixed": (2.0, 3.0),
    "blockpilot": (1.5, 2.5),
    "fixed:4": (0.1, 0.1),
}


def make_evaluation(seconds=SECONDS) -> pd.DataFrame:
    rows = [
        {"policy": policy, "prompt_id": prompt, "seed": 0, "split": "test", "decode_s": decode_s}
        for policy, several in seconds.items()
        for prompt, decode_s in zip(("p1", "p2"), several, strict=True)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(select_s=(frame["policy"] == "blockpilot") * 0.25)


def make_prompts() -> pd.DataFrame:
    ids = ["p1", "p2", "t1", "t2", "v1"]
    splits = ["test", "test", "train", "train", "validation"]
    frame = pd.DataFrame({"prompt_id": ids, "conversation_id": ids, "split": splits})
    return frame.assign(dataset="sums", domain="arithmetic")


def make_costs(seconds=SECONDS) -> dict[str, dict]:
    prompts = make_prompts()
    pairs = prompts[["prompt_id", "split"]].assign(seed=0)
    spent = {"label_s": 10.0, "train_s": 4.0}
    table = policy_cost_table(make_evaluation(seconds), pairs, spent, prompts, resamples=100)
    return {row["baseline"]: row for row in table.to_dict("records")}


def test_labels_are_earned_back_by_the_seconds_that_each_request_saves() -> None:
    costs = make_costs()
    best, ar = costs["best_fixed"], costs["ar"]
    # Three of five pairs were learned from: 6 of 10 s, and 4 s of training.
    assert (best["n_labelled"], best["label_s"], best["train_s"]) == (3, 6.0, 4.0)
    # blockpilot takes 1.75 and 2.75 s, choosing included.
    assert best["saved_s"] == pytest.approx(0.25)
    assert best["speedup_pays_after_requests"] == pytest.approx(10 / 0.25)
    assert ar["saved_s"] == pytest.approx(3.75)
    assert ar["saved_s_low"] == pytest.approx(3.25)
    assert ar["saved_s_high"] == pytest.approx(4.25)
    assert best["n_timed"] == 2


def test_what_may_be_nothing_is_never_earned_back() -> None:
    best = make_costs(SECONDS | {"blockpilot": (0.5, 3.5)})["best_fixed"]
    assert best["saved_s"] == pytest.approx(0.25)
    assert best["saved_s_low"] < 0 < best["saved_s_high"]
    assert math.isnan(best["speedup_pays_after_requests"])


def test_a_selector_that_is_slower_never_pays() -> None:
    costs = make_costs(SECONDS | {"blockpilot": (3.0, 3.0)})
    assert costs["best_fixed"]["saved_s"] < 0
    assert math.isnan(costs["best_fixed"]["speedup_pays_after_requests"])
    assert costs["ar"]["speedup_pays_after_requests"] == pytest.approx(10 / (6 - 3.25))
