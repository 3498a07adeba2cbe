"""Draws the figures of `catalogue` from a run's tables, one by name or all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from blockpilot.ablation_plots import plot_ablation, plot_overhead
from blockpilot.catalogue import FIGURES, drawable
from blockpilot.comparison_plots import plot_draft_verify, plot_findings, plot_schemes
from blockpilot.cost_plots import plot_bounds, plot_cost
from blockpilot.errors import bad_input
from blockpilot.plots import plot_speedup, plot_tau
from blockpilot.progress import track
from blockpilot.prompt_plots import plot_best_sizes, plot_tau_heatmap
from blockpilot.response_plots import plot_agreement, plot_lengths
from blockpilot.selector_plots import plot_confusion, plot_predicted, plot_training
from blockpilot.tables import split_variants

# By stem: rows per decode variant, or the whole frame of a table without variants.
Tables = Mapping[str, Mapping[str, pd.DataFrame] | pd.DataFrame]
# Called with the tables, the trained block size, and the SVG's path, the PNG's and the title.
DRAW: dict[str, Callable[..., None]] = {
    "tau_by_block_size": lambda t, b, *to: plot_tau(t["tau_by_block_size"], b, *to),
    "speedup": lambda t, b, *to: plot_speedup(t["main"], *to),
    "draft_verify": lambda t, b, *to: plot_draft_verify(t["draft_verify"], b, *to),
    "schemes": lambda t, b, *to: plot_schemes(_test_rows(t["schemes"]), b, *to),
    "bounds": lambda t, b, *to: plot_bounds(t["bounds"], *to),
    "findings": lambda t, b, *to: plot_findings(t["finding_distribution"], t["findings"], b, *to),
    "best_block_size_by_domain": lambda t, b, *to: plot_best_sizes(t["best_block_size"], b, *to),
    "tau_heatmap": lambda t, b, *to: plot_tau_heatmap(t["tau_by_prompt"], b, *to),
    "response_lengths": lambda t, b, *to: plot_lengths(t["response_lengths"], *to),
    "training_curves": lambda t, b, *to: plot_training(t["training"], *to),
    "confusion": lambda t, b, *to: plot_confusion(t["predictions"], *to),
    "predicted_oracle": lambda t, b, *to: plot_predicted(t["predictions"], *to),
    "ablation_radius": lambda t, b, *to: plot_ablation(t["ablations"], "radius", *to),
    "ablation_depth": lambda t, b, *to: plot_ablation(t["ablations"], "depth", *to),
    "ablation_width": lambda t, b, *to: plot_ablation(t["ablations"], "width", *to),
    "ablation_features": lambda t, b, *to: plot_ablation(t["ablations"], "features", *to),
    "replay_agreement": lambda t, b, *to: plot_agreement(t["replay_pairs"], *to),
    "replay_cost": lambda t, b, *to: plot_cost(t["replay_cost"], *to),
    "overhead": lambda t, b, *to: plot_overhead(t["overhead"], *to),
}


def draw_figure(
    name: str,
    tables_folder: str | Path,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
) -> None:
    """Draw one figure of the catalogue.

    Args:
        name: Its name there.
        tables_folder: Where the CSV files of its tables lie.
        trained_block_size: B, marked in most figures.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.

    Raises:
        BlockPilotError: If there is no figure of this name.
    """
    if name not in FIGURES:
        raise bad_input("figure", name, ", ".join(FIGURES), "Choose one of them.")
    figure = FIGURES[name]
    tables = {stem: _read_table(Path(tables_folder) / f"{stem}.csv") for stem in figure.tables}
    DRAW[name](tables, trained_block_size, path_svg, path_png, figure.title)


def draw_all(run_folder: str | Path, output_folder: str | Path) -> list[Path]:
    """Draw every figure whose tables a run has, in the order of the catalogue.

    Args:
        run_folder: `results/RUN` or what was published of it: manifest.json and tables/.
        output_folder: Where the SVG and PNG files go.

    Returns:
        The files, two per figure.

    Raises:
        BlockPilotError: If the run is not finished, or older than the figures.
    """
    tables, paths = Path(run_folder) / "tables", []
    trained_block_size = _read_trained_block_size(Path(run_folder))
    names = drawable(path.stem for path in tables.glob("*.csv"))
    for name in track(names, description="figures", unit="figure"):
        own = [Path(output_folder) / f"{name}{suffix}" for suffix in (".svg", ".png")]
        draw_figure(name, tables, trained_block_size, *own)
        paths += own
    return paths


def _read_table(path: Path) -> Mapping[str, pd.DataFrame] | pd.DataFrame:
    frame = pd.read_csv(path)
    return split_variants(frame) if "decode" in frame else frame


def _test_rows(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {decode: table[table["split"] == "test"] for decode, table in tables.items()}


def _read_trained_block_size(run_folder: Path) -> int:
    path = run_folder / "manifest.json"
    if not path.is_file():
        raise bad_input("run", str(run_folder), "a finished run", "Run it: make run.")
    value = json.loads(path.read_text(encoding="utf-8")).get("trained_block_size")
    if value is None:
        where = f"trained_block_size in {path}"
        raise bad_input(where, None, "a block size", "Run it again: make run.")
    return value
