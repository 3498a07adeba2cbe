"""Trains a selector on pairs (p(x), B*) with cross-entropy, as the paper does.

Shapes: n = prompts, F = input features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from blockpilot.errors import BlockPilotError
from blockpilot.labels import best_fixed_block_size
from blockpilot.progress import track
from blockpilot.selector import Selector, SelectorConfig, feature_size, prepare_features


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectorTraining:
    """Optimizer settings; the defaults in conf/selector/paper.yaml are the paper's."""

    epochs: int
    learning_rate: float
    batch_size: int
    seed: int


def configure(pairs: pd.DataFrame, settings: Mapping) -> SelectorConfig:
    """Return the selector that fits the pairs: their inputs, candidates and best fixed size.

    Args:
        pairs: Rows of a `pairs` artifact.
        settings: features, width, depth and dropout.
    """
    vectors = (len(pairs[name].iloc[0]) for name in ("prefill_logits", "prefill_hidden"))
    return SelectorConfig(
        **{key: settings[key] for key in ("features", "width", "depth", "dropout")},
        input_size=feature_size(settings["features"], *vectors),
        block_sizes=tuple(int(b) for b in pairs["candidates"].iloc[0]),
        fallback_block_size=best_fixed_block_size(pairs),
    )


@dataclass(frozen=True, slots=True)
class _Data:
    inputs: Tensor  # [n, F]
    classes: Tensor  # [n]


def train_selector(
    pairs: pd.DataFrame,
    config: SelectorConfig,
    training: SelectorTraining,
    device: str = "cpu",
    show_progress: bool = True,
) -> tuple[Selector, list[dict]]:
    """Train on the rows of split "train"; "validation" is only measured.

    Args:
        pairs: Rows of a `pairs` artifact.
        config: Architecture.
        training: Optimizer settings.
        device: Where to train, and where the selector stays.
        show_progress: False where the caller shows its own, over many trainings.

    Returns:
        (selector in evaluation mode, one history row per epoch).

    Raises:
        BlockPilotError: If there is no training pair.
    """
    torch.manual_seed(training.seed)
    parts = {split: pairs[pairs["split"] == split] for split in _SPLITS}
    data = {split: _tensors(rows, config, device) for split, rows in parts.items()}
    if not len(data["train"].classes):
        raise BlockPilotError(
            "no pair has split 'train': the selector needs labelled training prompts. "
            "Add prompts, or unpin the split of a data set (prompts.datasets.NAME.split)."
        )
    selector = Selector(config).to(device)
    optimizer = torch.optim.Adam(selector.parameters(), lr=training.learning_rate)
    history = []
    epochs = range(1, training.epochs + 1)
    if show_progress:
        epochs = track(epochs, description="train selector", unit="epoch")
    for epoch in epochs:
        _train_epoch(selector, optimizer, data["train"], training.batch_size)
        row: dict = {"epoch": epoch}
        for split, part in data.items():
            row[f"{split}_loss"], row[f"{split}_accuracy"] = _measure(selector, part)
        history.append(row)
    return selector.eval(), history


_SPLITS = ("train", "validation")


def _tensors(pairs: pd.DataFrame, config: SelectorConfig, device: str) -> _Data:
    return _Data(
        pair_inputs(pairs, config.features, config.input_size).to(device),
        torch.tensor(pairs["class_index"].to_numpy(dtype=np.int64), device=device),
    )


def pair_inputs(pairs: pd.DataFrame, features: str, input_size: int) -> Tensor:
    """Return the inputs [n, F] of all rows of a `pairs` frame."""
    if pairs.empty:
        return torch.empty(0, input_size)
    logits = torch.from_numpy(np.stack(pairs["prefill_logits"]).astype(np.float32))
    hidden = torch.from_numpy(np.stack(pairs["prefill_hidden"]).astype(np.float32))
    return prepare_features(features, logits, hidden)


def _train_epoch(
    selector: Selector, optimizer: torch.optim.Optimizer, data: _Data, batch_size: int
) -> None:
    selector.train()
    for rows in torch.randperm(len(data.classes)).to(data.classes.device).split(batch_size):
        loss = functional.cross_entropy(selector(data.inputs[rows]), data.classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def _measure(selector: Selector, data: _Data) -> tuple[float, float]:
    """Return (mean cross-entropy in nats, accuracy); NaN without rows."""
    if not len(data.classes):
        return float("nan"), float("nan")
    selector.eval()
    scores = selector(data.inputs)
    accuracy = (scores.argmax(-1) == data.classes).double().mean()
    return float(functional.cross_entropy(scores, data.classes)), float(accuracy)


def model_card(config: SelectorConfig, training: SelectorTraining, history: list[dict]) -> str:
    """Return a selector's model card as Markdown."""
    last = history[-1]
    rows = {
        "input": f"{config.features}, {config.input_size} numbers of the prompt's last position",
        "classes (block sizes)": list(config.block_sizes),
        "architecture": f"{config.depth} hidden layers of {config.width}, dropout {config.dropout}",
        "training": f"{training.epochs} epochs, Adam {training.learning_rate:g}, "
        f"batch {training.batch_size}, seed {training.seed}",
        "fallback block size": config.fallback_block_size,
        "accuracy (train, validation)": f"{last['train_accuracy']:.3f}, "
        f"{last['validation_accuracy']:.3f}",
    }
    lines = [f"| {key} | {value} |" for key, value in rows.items()]
    lead = "Chooses a block size once per request. Not gated: it acts on every prompt."
    return "\n".join(["# Block size selector", "", lead, "", "| | |", "| --- | --- |", *lines, ""])


@torch.no_grad()
def predict(selector: Selector, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a `predictions` frame: the chosen block size and all probabilities per pair."""
    config = selector.config
    inputs = pair_inputs(pairs, config.features, config.input_size)
    scores = selector(inputs.to(selector.output.weight.device)).cpu()
    frame = pairs[["prompt_id", "seed", "split", "best_block_size"]].copy()
    frame["predicted_block_size"] = [config.block_sizes[i] for i in scores.argmax(-1)]
    frame["probabilities"] = list(scores.softmax(-1).numpy())
    return frame
