"""The catalogue, its captions, and drawing by it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from unittest.mock import create_autospec

import pandas as pd
import pytest

from blockpilot import figures
from blockpilot.catalogue import FIGURES, drawable
from blockpilot.errors import BlockPilotError

CAPTIONS = Path(__file__).resolve().parents[2] / "workflow" / "report"
OF_TABLES = {f"table_{name}" for name in ("main", "datasets", "ablations", "overhead")}
TAU = """\
decode,group,block_size,n,tau_mean,tau_mean_low,tau_mean_high
T0,average,4,9,3.0,2.9,3.1
T0,average,8,9,5.0,4.8,5.2
T1,average,4,9,2.5,2.4,2.6
T1,average,8,9,4.0,3.8,4.2
"""
MAIN = """\
decode,policy,group,n_timed,speedup,speedup_low,speedup_high
T0,ar,average,9,1.0,1.0,1.0
T0,fixed:8,average,9,2.4,2.3,2.5
"""


@pytest.fixture
def run_folder(tmp_path) -> Path:
    """Return a run that has the tables of two figures, and one that no figure knows."""
    folder = tmp_path / "run"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables/tau_by_block_size.csv").write_text(TAU)
    (folder / "tables/main.csv").write_text(MAIN)
    (folder / "tables/unknown.csv").write_text("a\n1\n")
    (folder / "manifest.json").write_text(json.dumps({"trained_block_size": 7}))
    return folder


def test_every_figure_is_told_apart_and_can_be_drawn():
    assert list(figures.DRAW) == list(FIGURES)
    titles = [figure.title for figure in FIGURES.values()]
    assert len(set(titles)) == len(titles)
    assert all(figure.tables for figure in FIGURES.values())


def test_every_figure_and_table_has_a_caption_and_no_caption_is_left_over():
    captions = {path.stem: path.read_text(encoding="utf-8") for path in CAPTIONS.glob("*.rst")}
    assert set(captions) == {*FIGURES, *OF_TABLES, "workflow"}
    assert [name for name, text in captions.items() if len(text.split()) < 10] == []


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_gets_all_of_its_tables_and_its_files(name, monkeypatch):
    plots = {key: value for key, value in vars(figures).items() if key.startswith("plot_")}
    doubles = {key: create_autospec(plot) for key, plot in plots.items()}
    for key, double in doubles.items():
        monkeypatch.setattr(figures, key, double)
    tables = {
        stem: {"T0": pd.DataFrame({"split": ["validation", "test"], "stem": stem})}
        for stem in FIGURES[name].tables
    }
    figures.DRAW[name](tables, 7, "to.svg", "to.png", "a title")
    [call] = [call for double in doubles.values() for call in double.call_args_list]
    [plot] = [plots[key] for key, double in doubles.items() if double.called]
    bound = inspect.signature(plot).bind(*call.args, **call.kwargs).arguments
    assert (bound["path_svg"], bound["path_png"], bound["title"]) == ("to.svg", "to.png", "a title")
    assert bound.get("trained_block_size", 7) == 7
    used = [value["T0"] for value in call.args if isinstance(value, dict)]
    assert [frame["stem"].iloc[0] for frame in used] == list(FIGURES[name].tables)
    splits = {"schemes": ["test"]}.get(name, ["validation", "test"])
    assert [frame["split"].tolist() for frame in used] == [splits] * len(used)


def test_a_figure_is_drawable_when_all_of_its_tables_are_there():
    assert drawable([]) == []
    assert drawable(["main", "nothing"]) == ["speedup"]
    assert drawable(["findings"]) == []
    assert drawable(["finding_distribution", "findings", "tau_by_block_size"]) == [
        "tau_by_block_size",
        "findings",
    ]
    everything = [stem for figure in FIGURES.values() for stem in figure.tables]
    assert drawable(reversed(everything)) == list(FIGURES)


def test_all_figures_of_a_run_are_drawn_in_order(run_folder, tmp_path):
    out = tmp_path / "figures"
    paths = figures.draw_all(run_folder, out)
    names = ("tau_by_block_size.svg", "tau_by_block_size.png", "speedup.svg", "speedup.png")
    assert paths == [out / name for name in names]
    assert sorted(out.iterdir()) == sorted(paths)
    text = (out / "tau_by_block_size.svg").read_text(encoding="utf-8")
    # Matplotlib writes every text as a comment above its outlines.
    assert "<!-- trained block size B = 7 -->" in text
    assert "<!-- decode T1 -->" in text
    assert f"<!-- {FIGURES['tau_by_block_size'].title} -->" in text
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def test_an_unfinished_or_old_run_is_an_error(run_folder, tmp_path):
    (run_folder / "manifest.json").write_text("{}")
    with pytest.raises(BlockPilotError, match=r"trained_block_size in .*manifest.json is None"):
        figures.draw_all(run_folder, tmp_path)
    (run_folder / "manifest.json").unlink()
    with pytest.raises(BlockPilotError, match="allowed: a finished run"):
        figures.draw_all(run_folder, tmp_path)


def test_an_unknown_figure_is_an_error(run_folder):
    with pytest.raises(BlockPilotError, match="figure is 'tau'; allowed: tau_by_block_size, "):
        figures.draw_figure("tau", run_folder / "tables", 7, "to.svg", "to.png")
