"""The figures of the selector: written whole, reproducibly, and showing what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figure_cases import (
    DECODES,
    NOWHERE,
    TITLES,
    catch_figures,
    check_layout,
    check_written_twice,
    labels_of,
    lines_of,
)
from matplotlib.colors import to_rgb

from blockpilot import selector_plots
from blockpilot.plots import COLOURS
from blockpilot.selector_plots import plot_confusion, plot_predicted, plot_training

QUICK = {"resamples": 50}
# Group, best size, predicted size, tie, tau at the predicted and at the best size.
REQUESTS = [
    ("code", 8, 8, False, 4.0, 4.0),
    ("code", 8, 8, False, 5.0, 5.0),
    ("code", 8, 9, True, 3.0, 3.0),
    ("prose", 8, 9, False, 2.5, 3.5),
    ("prose", 9, 6, False, 4.0, 4.5),
    ("human_eval", 6, 9, False, 1.0, 1.5),
]


def make_training(epochs=40):
    epoch = np.arange(1, epochs + 1)
    return pd.DataFrame(
        {
            "epoch": epoch,
            "train_loss": 5 / epoch,
            "validation_loss": 1 + 4 / epoch,
            "train_accuracy": 1 - 0.9 / epoch,
            "validation_accuracy": 0.5 - 0.4 / epoch,
            "n_train": 190,
            "n_validation": 61,
            "chance": 0.2,
            "train_majority": 0.52,
            "validation_majority": 0.62,
        }
    )


def make_predictions(count=6):
    names = ["group", "best_block_size", "predicted_block_size", "is_tie"]
    frame = pd.DataFrame(REQUESTS[:count], columns=[*names, "tau_predicted", "tau_oracle"])
    ids = [f"p{i}" for i in range(count)]
    frame = frame.assign(prompt_id=ids, conversation_id=ids, seed=0, split="test")
    frame["is_out_of_domain"] = frame["group"] == "human_eval"
    # A training prompt belongs to no figure of held-out prompts.
    return pd.concat([frame, frame[:1].assign(split="train", tau_oracle=50.0)], ignore_index=True)


def draw_training(paths, decodes):
    plot_training({d: make_training() for d in decodes}, *paths, title=TITLES["training_curves"])


def draw_confusion(paths, decodes):
    tables = {d: make_predictions() for d in decodes}
    plot_confusion(tables, *paths, title=TITLES["confusion"], **QUICK)


def draw_predicted(paths, decodes):
    tables = {d: make_predictions() for d in decodes}
    plot_predicted(tables, *paths, title=TITLES["predicted_oracle"], **QUICK)


ALL = [draw_training, draw_confusion, draw_predicted]


@pytest.fixture
def drawn(monkeypatch):
    """Return figures in the order they are drawn; nothing is written."""
    return catch_figures(monkeypatch, selector_plots)


@pytest.mark.parametrize("draw", ALL)
def test_figures_are_written_whole_and_reproducibly(tmp_path, draw):
    check_written_twice(tmp_path, draw)


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("decodes", DECODES)
def test_nothing_is_cut_off_or_hidden_by_a_legend(drawn, draw, decodes):
    draw(NOWHERE, decodes)
    check_layout(*drawn)


def test_training_curves_are_those_of_the_table(drawn):
    table = make_training()
    plot_training({"T0": table, "T1": make_training(3)}, *NOWHERE, title="Training")
    upper, right, lower, _ = drawn[0].axes
    train, validation, guess = upper.lines
    np.testing.assert_array_equal(train.get_ydata(), table["train_loss"])
    np.testing.assert_array_equal(validation.get_ydata(), table["validation_loss"])
    assert list(guess.get_ydata()) == pytest.approx([np.log(5)] * 2)
    lines = lines_of(lower)
    np.testing.assert_allclose(lines["train"].get_ydata(), 100 * table["train_accuracy"])
    np.testing.assert_allclose(lines["validation"].get_ydata(), 100 * table["validation_accuracy"])
    heights = [line.get_ydata()[0] for line in lower.lines[2:]]
    assert heights == pytest.approx([52, 62, 20])
    # Told apart in black and white too.
    assert train.get_linestyle() != validation.get_linestyle()
    assert train.get_marker() != validation.get_marker()
    assert (train.get_color(), validation.get_color()) == COLOURS[:2]
    assert upper.get_title() == "decode T0\nn = 190 train, 61 validation"
    assert (upper.get_ylabel(), lower.get_ylabel()) == (
        "loss (cross-entropy, nats)",
        "accuracy (%)",
    )
    assert upper.get_ylim()[0] == lower.get_ylim()[0] == 0
    assert upper.get_ylim() == right.get_ylim() != lower.get_ylim()


def test_training_without_references_or_validation(drawn):
    table = make_training(1).drop(columns=["chance", "train_majority", "validation_majority"])
    table[["validation_loss", "validation_accuracy"]] = np.nan
    plot_training({"T0": table}, *NOWHERE, title="Training")
    assert [len(axes.lines) for axes in drawn[0].axes] == [2, 2]
    assert labels_of(drawn[0]) == ["train", "validation"]


def test_confusion_counts_rows_of_the_best_size(drawn):
    plot_confusion({"T0": make_predictions()}, *NOWHERE, title="Confusion", **QUICK)
    axes, bar = drawn[0].axes
    counts = {text.get_position(): int(text.get_text()) for text in axes.texts}
    assert {cell: count for cell, count in counts.items() if count} == {
        (8, 8): 2,
        (9, 8): 2,
        (6, 9): 1,
    }
    assert set(counts) == {(x, y) for x in range(6, 10) for y in range(6, 10)}
    cells = {patch.get_xy(): patch for patch in axes.patches if patch.get_facecolor()[3]}
    assert cells[5.5, 8.5].get_facecolor()[:3] == pytest.approx(to_rgb(COLOURS[0]), abs=0.01)
    half = (1 + np.array(to_rgb(COLOURS[0]))) / 2
    assert cells[7.5, 7.5].get_facecolor()[:3] == pytest.approx(half, abs=0.01)
    assert cells[5.5, 5.5].get_facecolor()[:3] == (1, 1, 1)
    frames = [patch.get_xy() for patch in axes.patches if not patch.get_facecolor()[3]]
    assert frames == [(size - 0.5, size - 0.5) for size in range(6, 10)]
    # Without the tie, 2 of 4 are right.
    heading, accuracy, clear = axes.get_title().split("\n")
    assert heading == "decode T0, average, n = 5"
    assert accuracy.startswith("accuracy 40 [") and clear.startswith("without ties 50 [")
    assert clear.endswith("%, n = 4")
    assert bar.get_ylabel() == "share of the row (%)" and bar.get_ylim() == (0, 100)


def test_predicted_against_the_oracle(drawn):
    tables = {"T0": make_predictions(), "T1": make_predictions(2)}
    plot_predicted(tables, *NOWHERE, title="Predicted", **QUICK)
    left, right = drawn[0].axes
    points = {own.get_label(): own.get_offsets().data.tolist() for own in left.collections}
    outside = "human_eval (out of domain, in no number)"
    assert points == {
        "code": [[4, 4], [5, 5], [3, 3]],
        "prose": [[3.5, 2.5], [4.5, 4]],
        outside: [[1.5, 1]],
    }
    code, prose, hollow = left.collections
    assert len(hollow.get_facecolor()) == 0
    assert all(own.get_facecolor()[0][3] < 1 for own in (code, prose))
    shapes = [own.get_paths()[0].vertices.shape for own in left.collections]
    assert len(set(shapes)) == 3
    # 1.5 lost by five requests; three lose nothing.
    assert left.get_title().startswith("decode T0, average, n = 5\nmean regret 0.30 [")
    assert left.get_title().endswith("] tokens per round\n60 % on the diagonal")
    assert right.get_title().startswith("decode T1, average, n = 2\nmean regret 0.00 [0.00, 0.00]")
    assert left.get_xlim() == left.get_ylim() == right.get_xlim() == (0, 6)
    assert left.get_aspect() == 1
    assert labels_of(drawn[0]) == ["code", "prose", outside, "as the oracle"]


def test_tiny_runs_can_be_drawn(drawn):
    alone, trained = make_predictions(1), make_predictions().query("split == 'train'")
    outside = make_predictions().query("is_out_of_domain")
    tied = make_predictions().query("is_tie")
    tables = {"T0": alone, "T1": trained, "T07": outside, "T1_coupled": tied}
    plot_confusion(tables, *NOWHERE, title="Confusion", **QUICK)
    plot_predicted(tables, *NOWHERE, title="Predicted", **QUICK)
    headings = [axes.get_title() for axes in drawn[0].axes[:4]]
    assert headings == [
        "decode T0, average, n = 1\naccuracy 100 %\nwithout ties 100 %, n = 1",
        "decode T1, average, n = 0",
        "decode T07, average, n = 0",
        "decode T1_coupled, average, n = 1\naccuracy 0 %\nall are ties",
    ]
    plot_predicted({"T1": trained}, *NOWHERE, title="Predicted", **QUICK)
    assert drawn[2].axes[0].get_title() == "decode T1, average, n = 0"
