"""The notebooks run on the smoke run, as `make notebooks` runs them, and show what they promise."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from blockpilot.catalogue import drawable
from blockpilot.walkthrough_files import (
    choose_request,
    read_decoder,
    read_requests,
    read_walkthrough,
)

TIMEOUT_S = 600


@pytest.fixture(scope="module")
def place(smoke, tmp_path_factory) -> Path:
    """Return a copy of what notebooks need: the checkout is left as it was."""
    copy = tmp_path_factory.mktemp("notebooks")
    for name in ("conf", "notebooks", "workflow", "results/smoke"):
        shutil.copytree(smoke / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def executed(place) -> Callable[[str], nbformat.NotebookNode]:
    """Return a function that executes a notebook once; an error in a cell fails it."""
    done: dict[str, nbformat.NotebookNode] = {}

    def execute(name: str) -> nbformat.NotebookNode:
        if name not in done:
            done[name] = _execute(place, name)
        return done[name]

    return execute


def _execute(place: Path, name: str) -> nbformat.NotebookNode:
    folder = place / "results" / "smoke" / "notebooks"
    folder.mkdir(exist_ok=True)
    jupyter = Path(sys.executable).parent / "jupyter"
    library = {"PYTHONPATH": str(place / "workflow" / "src")}
    run = subprocess.run(
        [
            jupyter,
            "execute",
            f"notebooks/{name}.ipynb",
            f"--output=../{folder.relative_to(place)}/{name}",
        ],
        cwd=place,
        env={**os.environ, **library, "BLOCKPILOT_RUN": "smoke"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 0, f"{name}.ipynb failed:\n{run.stderr[-4000:]}"
    return nbformat.read(folder / f"{name}.ipynb", as_version=4)


def outputs_of(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """Return all outputs of a kind ("text" for what was printed), in order."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    if kind == "text":
        return [output.text for output in found if output.get("name") == "stdout"]
    return [output.data[kind] for output in found if kind in output.get("data", {})]


def drawable_names(place: Path) -> list[str]:
    return drawable(path.stem for path in (place / "results/smoke/tables").glob("*.csv"))


def test_every_figure_is_drawn_and_shown(executed, place) -> None:
    notebook = executed("figures")
    names = drawable_names(place)
    assert len(outputs_of(notebook, "image/png")) == len(names) > 0
    drawn = place / "results/smoke/notebooks/figures"
    assert {path.name for path in drawn.iterdir()} == {
        f"{name}.{end}" for name in names for end in ("svg", "png")
    }
    printed = "".join(outputs_of(notebook, "text"))
    assert re.search(rf"^{len(names)} figures in [\d.]+ s, without torch", printed, re.MULTILINE)
    print(printed)


def test_the_captions_are_those_of_the_report(executed, place) -> None:
    shown = outputs_of(executed("figures"), "text/markdown")
    for name in drawable_names(place):
        caption = (place / f"workflow/report/{name}.rst").read_text(encoding="utf-8").strip()
        assert caption and caption in shown


def test_the_runs_own_figures_are_left_alone(executed, smoke, place) -> None:
    executed("figures")
    for path in (smoke / "results/smoke/figures").iterdir():
        copied = place / "results/smoke/figures" / path.name
        assert copied.read_bytes() == path.read_bytes()


def test_a_prompt_is_walked_through(executed, place) -> None:
    pages = outputs_of(executed("explore"), "text/html")
    run = place / "results" / "smoke"
    config = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["config"]
    variant = next(iter(config["decode"]["variants"]))
    requests = read_requests(run, variant)
    chosen = choose_request(requests, out_of_domain=config["prompts"]["out_of_domain"])
    decode = read_decoder(config["pair"], place)
    limit = config["decode"]["max_new_tokens"]
    walk = read_walkthrough(run, variant, chosen, limit, decode)
    text = decode(list(chosen["output_ids"]))
    assert [visible_text(page) for page in pages if '<div class="text">' in page] == [text]
    (strips,) = [page for page in pages if 'class="strip chosen"' in page]
    assert re.findall(r"b = (\d+) <small>tau", strips) == [str(b) for b in walk.block_sizes]


def visible_text(page: str) -> str:
    inner = page.partition('<div class="text">')[2]
    inner = re.sub(r'<su[bp]>.*?</su[bp]>|<span class="end">↵</span>', "", inner)
    return unescape(re.sub(r"<[^>]*>", "", inner))


def test_the_ablations_are_shown(executed, place) -> None:
    notebook = executed("ablations")
    knobs = pd.read_csv(place / "results/smoke/tables/ablations.csv")["ablation"].unique()
    assert len(outputs_of(notebook, "image/png")) == len(knobs) == 4
    assert "this run did not make it" not in "".join(outputs_of(notebook, "text"))
    tables = "".join(outputs_of(notebook, "text/html"))
    for heading in ("tau gain over best fixed", "median ms", "validation accuracy", "regret"):
        assert heading in tables
