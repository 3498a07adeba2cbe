"""Every setting is trained with every seed, on the labels of its own radius."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from blockpilot.knobs import Setting
from blockpilot.records import ABLATIONS, read_table, write_table
from blockpilot.training.ablations import train_settings
from blockpilot.training.selector import SelectorTraining, configure, predict, train_selector

BASE = Setting(radius=1, depth=1, width=8, features="raw")
TRAINING = SelectorTraining(epochs=3, learning_rate=0.01, batch_size=8, seed=99)


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    """Return pairs of which size 2 is best on even prompts and 4 on odd ones (B = 4)."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(24):
        taus = [3.0, 1.0, 2.0, 1.0, 0.5] if index % 2 == 0 else [1.0, 1.0, 2.0, 1.0, 0.5]
        row = {"prompt_id": f"{index:016x}", "seed": 0, "domain": "code", "class_index": 1}
        row |= {"split": ("train", "validation", "test")[index % 3]}
        row |= {"prefill_logits": rng.normal(size=12).astype(np.float32)}
        row |= {"prefill_hidden": rng.normal(size=6).astype(np.float32)}
        row |= {"block_sizes": [2, 3, 4, 5, 6], "tau_by_block_size": taus}
        row |= {"candidates": [3, 4, 5], "best_block_size": 4, "is_tie": False}
        rows.append(row)
    return pd.DataFrame(rows)


def train(pairs, settings, seeds=(0, 1)) -> pd.DataFrame:
    runs = train_settings(pairs, settings, TRAINING, seeds, trained_block_size=4, dropout=0.2)
    return pd.concat([run[ABLATIONS.names] for run in runs])


def test_every_setting_and_seed_has_a_row_per_pair(pairs, tmp_path) -> None:
    settings = [BASE, replace(BASE, radius=2), replace(BASE, features="summary")]
    write_table(tmp_path / "ablations.parquet", train(pairs, settings), ABLATIONS)
    frame = read_table(tmp_path / "ablations.parquet", ABLATIONS)
    assert len(frame) == 3 * 2 * len(pairs)
    counts = frame.groupby(["radius", "depth", "width", "features", "training_seed"]).size()
    assert (counts == len(pairs)).all()
    assert len(counts) == 6


def test_labels_are_those_of_the_settings_radius(pairs) -> None:
    frame = train(pairs, [BASE, replace(BASE, radius=2)], seeds=(0,))
    even = frame["prompt_id"].map(lambda name: int(name, 16) % 2 == 0)
    narrow, wide = frame["radius"] == 1, frame["radius"] == 2
    assert (frame.loc[narrow, "best_block_size"] == 4).all()
    assert (frame.loc[wide & even, "best_block_size"] == 2).all()
    assert (frame.loc[wide & ~even, "best_block_size"] == 4).all()
    assert set(frame.loc[narrow, "predicted_block_size"]) <= {3, 4, 5}


def test_a_training_is_that_of_the_default_selector_with_its_seed(pairs) -> None:
    config = configure(pairs, {"features": "raw", "width": 8, "depth": 1, "dropout": 0.2})
    assert (config.input_size, config.block_sizes, config.fallback_block_size) == (12, (3, 4, 5), 4)
    selector, _ = train_selector(pairs, config, replace(TRAINING, seed=7))
    expected = predict(selector, pairs)["predicted_block_size"].tolist()
    torch.manual_seed(123)  # whatever came before
    frame = train(pairs, [BASE], seeds=(3, 7))
    own = frame[frame["training_seed"] == 7]
    assert own["predicted_block_size"].tolist() == expected
