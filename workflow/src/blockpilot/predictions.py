"""The selector as tables: how it was trained, what it predicts, and what that loses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.groups import (
    REQUEST,
    columns_of,
    locate,
    prompt_weights,
    ratio_by_prompt,
    split_groups,
    with_group,
)

LABEL = [*REQUEST, "best_block_size"]
# The columns of PAIRS that `prediction_table` reads.
LABELLED = (*LABEL, "is_tie", "block_sizes", "tau_by_block_size")
CURVES = ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy")
PREDICTED = (
    "group", "is_out_of_domain", "split", "prompt_id", "conversation_id", "seed",
    "best_block_size", "predicted_block_size", "is_tie", "tau_predicted", "tau_oracle",
)  # fmt: skip
# Statistic of `regret_table`: the columns that are summed and divided.
STATISTICS = {
    "accuracy": ("is_correct", "is_request"),
    "accuracy_clear": ("is_correct_clear", "is_clear"),
    "share_without_regret": ("has_no_regret", "is_request"),
    "regret": ("regret", "is_request"),
}


def training_table(history: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Return a selector's training curves with what can be reached without any feature.

    Args:
        history: HISTORY rows.
        predictions: PREDICTIONS rows of the same selector.

    Returns:
        Per epoch: losses in nats, accuracies, n_train and n_validation (requests), chance (the
        accuracy of guessing), and train_majority and validation_majority (the accuracy of always
        predicting the size that is most often the best one in training).

    Raises:
        BlockPilotError: If no prediction has split "train".
    """
    best = predictions["best_block_size"]
    train, validation = (best[predictions["split"] == name] for name in ("train", "validation"))
    if train.empty:
        found = sorted(set(predictions["split"]))
        raise bad_input("predictions: split", found, "rows of 'train'", "Train the selector again.")
    majority = train.mode().iloc[0]
    return history[["epoch", *CURVES]].assign(
        n_train=len(train),
        n_validation=len(validation),
        chance=1 / len(predictions["probabilities"].iloc[0]),
        train_majority=(train == majority).mean(),
        validation_majority=(validation == majority).mean(),
    )


def prediction_table(
    predictions: pd.DataFrame,
    pairs: pd.DataFrame,
    prompts: pd.DataFrame,
    out_of_domain: Sequence[str] = (),
) -> pd.DataFrame:
    """Return every request's predicted and best block size with the tau of both.

    Args:
        predictions: PREDICTIONS rows of one selector.
        pairs: The PAIRS rows that it was trained on, at least LABELLED.
        prompts: At least prompt_id, conversation_id, dataset and domain.
        out_of_domain: Names of data sets that get groups of their own.

    Returns:
        One row per request: group (its domain, or the out-of-domain data set), is_out_of_domain,
        split, prompt_id, conversation_id, seed, best_block_size (the smallest of ties),
        predicted_block_size, is_tie, tau_predicted and tau_oracle (tokens per round).

    Raises:
        BlockPilotError: If a request is not among the pairs with the same best size, if its
            predicted size was not swept, or as `groups.locate` and `groups.split_groups`.
    """
    rows = predictions.merge(pairs[list(LABELLED)], on=LABEL, how="left", validate="one_to_one")
    lost = rows.loc[rows["is_tie"].isna(), "prompt_id"]
    if len(lost):
        allowed = "a request of the pairs with the same best size"
        raise bad_input("predictions", lost.iloc[0], allowed, "Train the selector again.")
    rows = rows.astype({"is_tie": bool})
    rows["tau_predicted"] = _taus_at(rows, "predicted_block_size")
    rows["tau_oracle"] = _taus_at(rows, "best_block_size")
    rows = locate(rows, prompts, out_of_domain).sort_values(REQUEST)
    rows = rows.assign(is_out_of_domain=rows["dataset"].isin(out_of_domain))
    return with_group(rows, out_of_domain)[list(PREDICTED)].reset_index(drop=True)


def regret_table(
    predictions: pd.DataFrame, split: str = "test", resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """Return how often predictions are right and what they lose, per group.

    Args:
        predictions: Rows of `prediction_table`.
        split: The split to keep.
        resamples: Bootstrap resamples, drawn with `seed`.
        seed: Of the resamples.

    Returns:
        n (requests), n_clear (of them without a tie), and with 95 % intervals over conversations:
        accuracy, accuracy_clear (of requests without a tie), share_without_regret, and regret
        (the mean of tau_oracle - tau_predicted, tokens per round). No rows if the split has none.
    """
    rows = predictions[predictions["split"] == split]
    rows = _measure(rows).assign(dataset=rows["group"], domain=rows["group"])
    outside = list(dict.fromkeys(rows.loc[rows["is_out_of_domain"], "group"]))
    table: list[dict] = []
    for group, members in split_groups(rows, outside).items():
        everyone, weights = prompt_weights(members, resamples, seed)
        row = {"group": group, "n": len(members), "n_clear": int(members["is_clear"].sum())}
        for name, parts in STATISTICS.items():
            row |= columns_of(name, ratio_by_prompt(members, *parts, everyone, weights))
        table.append(row)
    return pd.DataFrame(table)


def _taus_at(rows: pd.DataFrame, column: str) -> list[float]:
    taus = []
    for row in rows.itertuples():
        size = int(getattr(row, column))
        by_size = dict(zip(row.block_sizes, row.tau_by_block_size, strict=True))
        if size not in by_size:
            allowed = f"a swept size: {sorted(map(int, by_size))}"
            where = f"{column} of prompt {row.prompt_id!r}"
            raise bad_input(where, size, allowed, "Train the selector again.")
        taus.append(float(by_size[size]))
    return taus


def _measure(rows: pd.DataFrame) -> pd.DataFrame:
    correct, clear = rows["predicted_block_size"] == rows["best_block_size"], ~rows["is_tie"]
    regret = rows["tau_oracle"] - rows["tau_predicted"]
    numbers = {
        "is_request": np.ones(len(rows)),
        "is_correct": correct,
        "is_clear": clear,
        "is_correct_clear": correct & clear,
        "has_no_regret": regret == 0,
        "regret": regret,
    }
    return rows.assign(**numbers).astype({name: float for name in numbers})
