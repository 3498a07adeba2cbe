"""Imports only point down, the lower modules stay free of torch, and nothing unpickles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "workflow" / "src" / "blockpilot"

# A module may import modules of its own layer and below. A package's entry covers its modules.
LAYERS = {
    "errors": 0,
    "records": 0,
    "schemas": 0,
    "candidates": 0,
    "provenance": 0,
    "rounds": 0,
    "progress": 0,
    "knobs": 0,
    "job_costs": 0,
    "devices": 0,
    "catalogue": 0,
    "ablations": 1,
    "costs": 1,
    "predictions": 1,
    "reported": 1,
    "published": 1,
    "readme": 1,
    "figures": 1,
    "prompt_plots": 1,
    "response_plots": 1,
    "selector_plots": 1,
    "ablation_plots": 1,
    "walkthrough": 1,
    "walkthrough_files": 1,
    "walkthrough_html": 1,
    "overhead": 6,
    "metrics": 1,
    "statistics": 1,
    "tables": 1,
    "texts": 1,
    "plots": 1,
    "config": 2,
    "config_rules": 0,
    "prompts": 2,
    "prompt_files": 2,
    "external": 4,
    "control": 6,
    "schemes": 6,
    "groups": 1,
    "comparisons": 1,
    "comparison_plots": 1,
    "cost_plots": 1,
    "findings": 1,
    "headroom": 1,
    "replay_control": 1,
    "sampling": 2,
    "timing": 2,
    "pocket": 2,
    "checkpoints": 2,
    "labels": 2,
    "acceptance": 1,
    "bounds": 1,
    "latency": 1,
    "parts": 0,
    "draft": 3,
    "packed": 3,
    "target": 3,
    "fused": 3,
    "selector": 3,
    "policies": 3,
    "decode": 4,
    "replay": 4,
    "training": 4,
    "training.assess": 5,
    "trajectories": 4,
    "sweep": 5,
    "evaluate": 5,
    "jobs": 0,
    "pair": 5,
    "cli": 6,
    "__init__": 7,  # the package itself: what `from blockpilot import ...` offers to users
}
TORCH_FREE = (
    "errors",
    "records",
    "candidates",
    "provenance",
    "rounds",
    "metrics",
    "statistics",
    "tables",
    "plots",
    "config",
    "parts",
    "jobs",
    "labels",
    "acceptance",
    "bounds",
    "latency",
    "groups",
    "findings",
    "comparisons",
    "headroom",
    "replay_control",
    "knobs",
    "job_costs",
    "devices",
    "catalogue",
    "ablations",
    "costs",
    "predictions",
    "reported",
    "published",
    "readme",
    "figures",
    "prompt_plots",
    "response_plots",
    "texts",
    "walkthrough",
    "walkthrough_html",
)
FORBIDDEN = re.compile(
    r"^\s*(?:import|from)\s+(?:pickle|cloudpickle|dill|joblib|shelve|marshal)\b"
    r"|\bpickle\.\w+"
    r"|\.(?:to|read)_pickle\("
    r"|\ballow_pickle\s*=\s*True"
    r"|\btorch\.(?:load|save)\b"
    r"|\btrust_remote_code\s*=\s*True",
    re.MULTILINE,
)


def module_name(path: Path) -> str:
    """Return the dotted name below blockpilot; a package's __init__ is the package's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer_of(module: str) -> int:
    """Return a module's layer, its package's where it has no entry of its own."""
    top = module.partition(".")[0]
    layer = LAYERS.get(module, LAYERS.get(top))
    if layer is None:
        pytest.fail(f"blockpilot.{module} has no layer: add {top!r} to LAYERS in {Path(__file__)}")
    return layer


def imported_names(path: Path) -> Iterator[str]:
    """Yield the absolute dotted name of everything that a file imports, at any depth."""
    package = ("blockpilot", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else None
            called = node.func.id if isinstance(node.func, ast.Name) else called
            name = getattr(node.args[0], "value", None)
            if called in {"import_module", "__import__"} and isinstance(name, str):
                yield name


def imported_modules(path: Path) -> set[str]:
    """Return the blockpilot modules among a file's imports, by their names in MODULES."""
    found = set()
    for name in imported_names(path):
        if name != "blockpilot" and not name.startswith("blockpilot."):
            continue
        inner = name.removeprefix("blockpilot").lstrip(".")
        # The last part may be a function or class: fall back to the module that holds it.
        holder = inner if inner in MODULES else inner.rpartition(".")[0]
        found.add(holder or "__init__")
    return found


def imports_root(path: Path, root: str) -> list[str]:
    return sorted({name for name in imported_names(path) if name.split(".")[0] == root})


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    layer = layer_of(module)
    upward = {
        other: layer_of(other)
        for other in imported_modules(MODULES[module])
        if layer_of(other) > layer
    }
    assert not upward, f"blockpilot.{module} (layer {layer}) imports from higher layers: {upward}"


@pytest.mark.parametrize("module", MODULES)
def test_library_does_not_know_snakemake(module):
    found = imports_root(MODULES[module], "snakemake")
    assert not found, (
        f"blockpilot.{module} imports {found}: only workflow/scripts may see snakemake"
    )


@pytest.mark.parametrize("module", [name for name in TORCH_FREE if name in MODULES])
def test_lower_modules_do_not_name_torch(module):
    found = imports_root(MODULES[module], "torch")
    assert not found, f"blockpilot.{module} imports {found}: it must stay free of torch"


def test_importing_the_lower_modules_does_not_load_torch():
    """The Snakefile is parsed again by every job, so what it imports has to stay light."""
    modules = ", ".join(f"blockpilot.{name}" for name in TORCH_FREE if name in MODULES)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "False", (
        f"one of {modules}, or the package's __init__, loads torch"
    )


def test_nothing_unpickles_or_runs_remote_code():
    """Weights and records are safetensors, Parquet and JSON: reading a file never executes it."""
    paths = [
        path
        for folder in ("workflow", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".smk", ".ipynb"} and path != Path(__file__).resolve()
    ]
    found = [
        f"{path.relative_to(ROOT)}: {match.group().strip()}"
        for path in paths
        for match in FORBIDDEN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, found


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import dump",
        "pickle.loads(raw)",
        "torch.load(path)",
        "torch.save(state, path)",
        "np.load(path, allow_pickle=True)",
        "load(name, trust_remote_code=True)",
    ],
)
def test_the_search_for_forbidden_calls_finds_them(line):
    assert FORBIDDEN.search(line)
