"""The selector: learns what is there, and keeps it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from blockpilot.errors import BlockPilotError
from blockpilot.records import HISTORY, PAIRS, PREDICTIONS, read_table, write_table
from blockpilot.selector import (
    FEATURES,
    Selector,
    SelectorConfig,
    feature_size,
    prepare_features,
)
from blockpilot.training.selector import SelectorTraining, predict, train_selector

VOCAB_SIZE, HIDDEN_SIZE = 24, 16
SIZES = (3, 4, 5)


def make_config(features: str = "raw", **changes) -> SelectorConfig:
    values = {
        "features": features,
        "input_size": feature_size(features, VOCAB_SIZE, HIDDEN_SIZE),
        "block_sizes": SIZES,
        "width": 48,
        "depth": 2,
        "dropout": 0.2,
        "fallback_block_size": 4,
    }
    return SelectorConfig(**{**values, **changes})


TRAINING = SelectorTraining(epochs=12, learning_rate=3e-3, batch_size=32, seed=0)


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    """Return pairs whose class is the largest of three logits, and of three hidden numbers."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(600):
        class_index = int(rng.integers(3))
        logits = rng.normal(size=VOCAB_SIZE).astype(np.float32)
        hidden = rng.normal(size=HIDDEN_SIZE).astype(np.float32)
        logits[class_index] += 5
        hidden[class_index] += 5
        rows.append(
            {
                "prompt_id": f"{index:016x}",
                "seed": 0,
                "split": ("train", "train", "validation", "test")[index % 4],
                "domain": "code",
                "prefill_logits": logits,
                "prefill_hidden": hidden,
                "block_sizes": [2, *SIZES],
                "tau_by_block_size": [1.0, *(2.0 + (i == class_index) for i in range(3))],
                "candidates": list(SIZES),
                "best_block_size": SIZES[class_index],
                "class_index": class_index,
                "best_block_size_swept": SIZES[class_index],
                "is_tie": False,
            }
        )
    return pd.DataFrame(rows)


# `summary` does not tell which logit is largest: the signal is planted elsewhere, see below.
@pytest.mark.parametrize("features", [name for name in FEATURES if name != "summary"])
def test_a_planted_signal_is_learned(features, pairs) -> None:
    selector, history = train_selector(pairs, make_config(features), TRAINING)
    predictions = predict(selector, pairs)
    hits = predictions["predicted_block_size"] == predictions["best_block_size"]
    assert hits[pairs["split"] == "test"].mean() > 0.9
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["validation_accuracy"] > 0.9


def test_summaries_learn_how_certain_the_target_is(pairs) -> None:
    certain = pairs.assign(
        prefill_logits=[
            logits * (0.02, 0.5, 20.0)[index]
            for logits, index in zip(pairs["prefill_logits"], pairs["class_index"], strict=True)
        ]
    )
    selector, _ = train_selector(certain, make_config("summary"), TRAINING)
    predictions = predict(selector, certain)
    hits = predictions["predicted_block_size"] == predictions["best_block_size"]
    assert hits[certain["split"] == "test"].mean() > 0.9


def test_without_a_signal_nothing_is_learned(pairs) -> None:
    blind = pairs.assign(
        prefill_logits=list(np.random.default_rng(1).normal(size=(len(pairs), VOCAB_SIZE)))
    )
    _, history = train_selector(blind, make_config(), TRAINING)
    assert history[-1]["validation_accuracy"] < 0.5


def test_training_depends_on_the_train_split_and_the_seed_alone(pairs) -> None:
    def parameters(frame, seed=0):
        training = SelectorTraining(epochs=2, learning_rate=1e-3, batch_size=32, seed=seed)
        selector, _ = train_selector(frame, make_config(), training)
        return torch.cat([p.flatten() for p in selector.parameters()])

    others = pairs["split"] != "train"
    scrambled = pairs.assign(class_index=pairs["class_index"].where(~others, 0))
    assert not scrambled["class_index"].equals(pairs["class_index"])
    assert torch.equal(parameters(pairs), parameters(scrambled))
    assert not torch.equal(parameters(pairs), parameters(pairs, seed=1))
    relabelled = pairs.assign(class_index=0)
    assert not torch.equal(parameters(pairs), parameters(relabelled))


def test_history_and_predictions_fit_their_artifacts(pairs, tmp_path) -> None:
    write_table(tmp_path / "pairs.parquet", pairs, PAIRS)
    stored = read_table(tmp_path / "pairs.parquet", PAIRS)
    selector, history = train_selector(stored, make_config(), TRAINING)
    predictions = predict(selector, stored)
    write_table(tmp_path / "h.parquet", history, HISTORY)
    write_table(tmp_path / "p.parquet", predictions, PREDICTIONS)
    assert read_table(tmp_path / "h.parquet", HISTORY)["epoch"].tolist() == list(range(1, 13))
    frame = read_table(tmp_path / "p.parquet", PREDICTIONS)
    assert len(frame) == len(pairs)
    probabilities = np.stack(frame["probabilities"])
    assert probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert [SIZES[i] for i in probabilities.argmax(axis=1)] == list(frame["predicted_block_size"])
    for index in range(0, 40, 7):  # one prompt at a time, as in decoding
        logits, hidden = (stored[c][index] for c in ("prefill_logits", "prefill_hidden"))
        choice = selector.choose(torch.tensor(logits), torch.tensor(hidden))
        assert choice == predictions["predicted_block_size"][index]


def test_missing_splits(pairs) -> None:
    with pytest.raises(BlockPilotError, match="no pair has split 'train'"):
        train_selector(pairs[pairs["split"] == "test"], make_config(), TRAINING)
    selector, history = train_selector(pairs[pairs["split"] == "train"], make_config(), TRAINING)
    assert np.isnan(history[-1]["validation_loss"])
    assert not selector.training


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_saved_selector_chooses_the_same(depth, tmp_path) -> None:
    torch.manual_seed(0)
    selector = Selector(make_config(depth=depth)).eval()
    selector.save(tmp_path / "new")
    loaded = Selector.load(tmp_path / "new")
    assert loaded.config == selector.config
    assert not loaded.training
    x = torch.randn(50, VOCAB_SIZE)
    assert torch.equal(loaded(x), selector(x))
    chosen = {loaded.choose(row, torch.empty(HIDDEN_SIZE)) for row in x}
    assert chosen == {selector.choose(row, torch.empty(HIDDEN_SIZE)) for row in x}
    assert chosen <= set(SIZES)
    assert len(chosen) >= 2
    assert sum(p.ndim == 2 for p in loaded.parameters()) == depth + 1


def test_a_damaged_selector_is_named(tmp_path) -> None:
    def save():
        Selector(make_config()).save(tmp_path)

    def edit_config(**changes):
        raw = {**json.loads((tmp_path / "config.json").read_text()), **changes}
        (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v}))

    weights = tmp_path / "selector.safetensors"
    for damage in (
        lambda: weights.write_bytes(weights.read_bytes()[:-100]),
        lambda: (tmp_path / "config.json").write_text("{"),
        lambda: edit_config(block_sizes=None),
        lambda: edit_config(width=None),
        lambda: edit_config(width=7),
        lambda: weights.unlink(),
    ):
        save()
        Selector.load(tmp_path)
        damage()
        with pytest.raises(BlockPilotError, match="is not a whole selector") as error:
            Selector.load(tmp_path)
        assert str(tmp_path) in str(error.value)


def test_features_are_what_their_names_say() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5, VOCAB_SIZE, generator=generator, dtype=torch.float64)
    hidden = torch.randn(5, HIDDEN_SIZE, generator=generator).half()
    found = {name: prepare_features(name, logits, hidden) for name in FEATURES}
    assert {x.dtype for x in found.values()} == {torch.float32}
    assert torch.equal(found["raw"], logits.float())
    assert torch.equal(found["hidden"], hidden.float())
    assert torch.allclose(found["softmax"].sum(-1), torch.ones(5))
    assert torch.equal(found["softmax"].argsort(), logits.argsort())
    assert torch.allclose(found["normalized"].mean(-1), torch.zeros(5), atol=1e-6)
    assert torch.allclose(found["normalized"].std(-1), torch.ones(5))
    stretched = prepare_features("normalized", 7 * logits + 3, hidden)
    assert torch.allclose(stretched, found["normalized"], atol=1e-5)
    for name in FEATURES:  # a prompt's input does not depend on its neighbours
        assert torch.allclose(prepare_features(name, logits[2], hidden[2]), found[name][2])


def test_summaries_are_entropy_top_probability_margin_and_mass() -> None:
    logits = torch.tensor([0.5, 0.25, 0.25]).log() + 7
    entropy, top, margin, mass = prepare_features("summary", logits, logits).tolist()
    assert entropy == pytest.approx(1.5 * np.log(2))
    assert (top, margin, mass) == pytest.approx((0.5, 0.25, 1.0))
    many = prepare_features("summary", torch.zeros(40), logits)
    assert many[3] == pytest.approx(10 / 40)  # the ten largest


def test_unknown_features_are_refused() -> None:
    match = r"selector\.features is 'summery'; allowed: raw, softmax, normalized, hidden, summary"
    with pytest.raises(BlockPilotError, match=match):
        prepare_features("summery", torch.ones(3), torch.ones(3))
