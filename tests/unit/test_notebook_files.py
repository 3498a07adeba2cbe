"""The notebooks as files: stripped, valid, and with a first cell in which the run is chosen."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def notebook(request) -> nbformat.NotebookNode:
    return nbformat.read(request.param, as_version=nbformat.NO_CONVERT)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_notebooks_are_here_and_in_the_readme() -> None:
    assert [path.stem for path in PATHS] == ["ablations", "explore", "figures"]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in readme for path in PATHS)


def test_the_format_is_valid(notebook) -> None:
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.metadata.kernelspec.name) == (4, "python3")


def test_outputs_are_stripped(notebook) -> None:
    left = [c.id for c in code_cells(notebook) if c.outputs or c.execution_count is not None]
    assert not left, f"cells with outputs: {left}; clear all outputs before committing"


def test_the_first_code_cell_chooses_the_run(notebook) -> None:
    first, *others = code_cells(notebook)
    assert first.metadata.get("tags") == ["parameters"]
    assert 'RUN = os.environ.get("BLOCKPILOT_RUN", "pocket")' in first.source
    assert not any("parameters" in cell.metadata.get("tags", ()) for cell in others)


def test_cells_are_short_python_without_torch(notebook) -> None:
    for cell in code_cells(notebook):
        found = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or node.names[0].name]
        }
        assert not found & {"torch", "transformers"}, cell.id
        assert len(cell.source.splitlines()) <= 30, cell.id
        assert max(map(len, cell.source.splitlines())) <= 100, cell.id
