"""The catalogue of all figures: which tables each one needs, and where the report shows it.

Without pandas and matplotlib, because every job parses the rules again; `figures` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Categories of the report.
RESULTS, LABELS, SELECTOR = "Results", "Labels", "Selector"
ABLATIONS, REPLAY, COST = "Ablations", "Replay", "Cost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of the catalogue; its name there is the stem of its files."""

    category: str  # folder of the report
    title: str  # above the figure, and in the report
    tables: tuple[str, ...]  # stems of the CSV files that it shows


# In the order in which they are drawn; `figures.DRAW` tells how.
FIGURES = {
    "tau_by_block_size": Figure(
        category=RESULTS,
        title="Acceptance length by block size, held-out prompts",
        tables=("tau_by_block_size",),
    ),
    "speedup": Figure(
        category=RESULTS,
        title="Speedup over autoregressive decoding, held-out prompts",
        tables=("main",),
    ),
    "draft_verify": Figure(
        category=RESULTS,
        title="Drafting more than is verified, held-out prompts",
        tables=("draft_verify",),
    ),
    "schemes": Figure(
        category=RESULTS,
        title="Acceptance length by verification scheme, held-out prompts",
        tables=("schemes",),
    ),
    "bounds": Figure(
        category=RESULTS,
        title="What choosing block sizes could gain at best, held-out prompts",
        tables=("bounds",),
    ),
    "findings": Figure(
        category=LABELS,
        title="Which of all block sizes is best, train and test prompts",
        tables=(
            "finding_distribution",
            "findings",
        ),
    ),
    "best_block_size_by_domain": Figure(
        category=LABELS,
        title="Which swept block size is best, by domain, all prompts",
        tables=("best_block_size",),
    ),
    "tau_heatmap": Figure(
        category=LABELS,
        title="Acceptance length of every request by block size",
        tables=("tau_by_prompt",),
    ),
    "response_lengths": Figure(
        category=LABELS,
        title="Length of the target's answers",
        tables=("response_lengths",),
    ),
    "training_curves": Figure(
        category=SELECTOR,
        title="Loss and accuracy while the selector is trained",
        tables=("training",),
    ),
    "confusion": Figure(
        category=SELECTOR,
        title="Predicted and best block size, held-out prompts",
        tables=("predictions",),
    ),
    "predicted_oracle": Figure(
        category=SELECTOR,
        title="Acceptance length at the predicted size, held-out prompts",
        tables=("predictions",),
    ),
    "ablation_radius": Figure(
        category=ABLATIONS,
        title="Ablation of the radius, held-out prompts",
        tables=("ablations",),
    ),
    "ablation_depth": Figure(
        category=ABLATIONS,
        title="Ablation of the depth, held-out prompts",
        tables=("ablations",),
    ),
    "ablation_width": Figure(
        category=ABLATIONS,
        title="Ablation of the width, held-out prompts",
        tables=("ablations",),
    ),
    "ablation_features": Figure(
        category=ABLATIONS,
        title="Ablation of the features, held-out prompts",
        tables=("ablations",),
    ),
    "replay_agreement": Figure(
        category=REPLAY,
        title="Acceptance length, live and by replay",
        tables=("replay_pairs",),
    ),
    "replay_cost": Figure(
        category=COST,
        title="What a label costs, live and by replay",
        tables=("replay_cost",),
    ),
    "overhead": Figure(
        category=COST,
        title="What choosing a block size costs",
        tables=("overhead",),
    ),
}


def drawable(table_names: Iterable[str]) -> list[str]:
    """Return the figures whose tables are all there, in the order of the catalogue.

    Args:
        table_names: Stems of CSV files; unknown ones are ignored.
    """
    there = set(table_names)
    return [name for name, figure in FIGURES.items() if there.issuperset(figure.tables)]
