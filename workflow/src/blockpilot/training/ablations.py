"""Trains every setting of the ablations, each with several training seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import pandas as pd

from blockpilot.candidates import candidate_set
from blockpilot.knobs import Setting
from blockpilot.labels import relabel
from blockpilot.progress import track
from blockpilot.training.selector import SelectorTraining, configure, predict, train_selector


def train_settings(
    pairs: pd.DataFrame,
    settings: Sequence[Setting],
    training: SelectorTraining,
    training_seeds: Sequence[int],
    trained_block_size: int,
    dropout: float,
    device: str = "cpu",
) -> Iterator[pd.DataFrame]:
    """Yield the ABLATIONS rows of one training after the other.

    Args:
        pairs: Rows of a `pairs` artifact; its labels are made anew for every radius.
        settings: What to train; each once per training seed.
        training: Optimizer settings; its seed is replaced by the training seeds.
        training_seeds: Of initialisation, dropout and the order of rows.
        trained_block_size: B, the middle of the candidates.
        dropout: As in the default selector.
        device: Where to train.
    """
    trainings = [(setting, seed) for setting in settings for seed in training_seeds]
    labels = {
        radius: relabel(pairs, candidate_set(trained_block_size, radius))
        for radius in {setting.radius for setting in settings}
    }
    for setting, seed in track(trainings, description="train ablations", unit="training"):
        labelled = labels[setting.radius]
        config = configure(labelled, {**asdict(setting), "dropout": dropout})
        own = replace(training, seed=seed)
        selector, _ = train_selector(labelled, config, own, device, show_progress=False)
        yield predict(selector, labelled).assign(**asdict(setting), training_seed=seed)
