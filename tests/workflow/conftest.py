"""Runs the workflow as a user does, in copies of the repository; the smoke run happens once."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from smoke_facts import DATASETS, VARIANTS

from blockpilot.records import EVALUATION, PAIRS, PROMPTS, SWEEP, TRAJECTORIES, read_table

ROOT = Path(__file__).resolve().parents[2]
CALL_LIMIT_S = 3600
# The line that announces a job (with the rule's message), as opposed to the table of planned ones.
STARTED = re.compile(r"^\s*(?:Job \d+: |(?:local)?(?:rule|checkpoint) \w+:).*$", re.MULTILINE)
# Rules made in a loop carry the block sizes of their job in their names.
SIZES = re.compile(r"(_\d+)+$")
FAILED = re.compile(r"^\s*Error in rule (\w+)", re.MULTILINE)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _copy_repository(destination: Path) -> Path:
    """Copy what is tracked or would be, and commit it there, so that a revision exists."""
    listed = _git(ROOT, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    for name in sorted(set(filter(None, listed))):
        if (ROOT / name).is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, destination / name)
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    _git(destination, "init", "--quiet")
    _git(destination, "add", "--all")
    _git(destination, *identity, "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "copy")
    return destination


@pytest.fixture(scope="session")
def make_checkout(tmp_path_factory) -> Callable[[str], Path]:
    """Return a function that makes a fresh checkout, without results."""
    return lambda name: _copy_repository(tmp_path_factory.mktemp(name))


@pytest.fixture(scope="session")
def checkout(make_checkout) -> Path:
    """Return the checkout in which `smoke` runs; tests leave it as they found it."""
    return make_checkout("checkout")


@pytest.fixture(scope="session")
def run_snakemake() -> Callable[..., subprocess.CompletedProcess]:
    """Return a function that calls snakemake in a checkout, with the library of that checkout."""

    def run(
        checkout: Path,
        *arguments: str,
        experiment: str | None = "smoke",
        overrides: Sequence[str] = (),
        cores: int = 2,
    ) -> subprocess.CompletedProcess:
        config = [f"experiment={experiment}"] if experiment else []
        config += [f"overrides={json.dumps(list(overrides))}"] if overrides else []
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments]
        return subprocess.run(
            [*command, *(["--config", *config] if config else [])],
            cwd=checkout,
            env={
                **os.environ,
                "PYTHONPATH": str(checkout / "workflow" / "src"),
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
        )

    return run


@pytest.fixture(scope="session")
def run_to_end(run_snakemake) -> Callable[..., Path]:
    """Return a function that runs snakemake, which must succeed, and returns the checkout."""

    def run(checkout: Path, *arguments: str, **options) -> Path:
        done = run_snakemake(checkout, *arguments, **options)
        log = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        assert done.returncode == 0, f"snakemake failed in {checkout}; the end of its log:\n{log}"
        return checkout

    return run


@pytest.fixture(scope="session")
def smoke(checkout, run_to_end) -> Path:
    """Return the checkout after one run of the smoke experiment on two cores."""
    return run_to_end(checkout, cores=2)


@pytest.fixture(scope="session")
def planned_rules(run_snakemake) -> Callable[..., set[str]]:
    """Return a function that names the rules which a call would run."""

    def plan(checkout: Path, *arguments: str, **options) -> set[str]:
        done = run_snakemake(checkout, "--summary", *arguments, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        rows = list(csv.DictReader(done.stdout.splitlines(), delimiter="\t"))
        assert rows, "the summary has no rows"
        assert {"rule", "plan"} <= set(rows[0])
        names = {row["rule"] for row in rows if row["plan"] != "no update"}
        return {SIZES.sub("", name) for name in names}

    return plan


@pytest.fixture(scope="session")
def started_jobs() -> Callable[[subprocess.CompletedProcess], list[str]]:
    """Return a function that lists the jobs which a finished call has started."""
    return lambda done: STARTED.findall(done.stdout + "\n" + done.stderr)


@pytest.fixture(scope="session")
def failed_rules() -> Callable[[subprocess.CompletedProcess], list[str]]:
    """Return a function that names the rules which failed in a finished call."""
    return lambda done: [
        SIZES.sub("", name) for name in FAILED.findall(done.stdout + "\n" + done.stderr)
    ]


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Path], dict[str, tuple[int, int]]]:
    """Return a function that lists a checkout's results with size and time of change."""

    def take(checkout: Path) -> dict[str, tuple[int, int]]:
        found = {}
        for path in sorted((checkout / "results").rglob("*")):
            name = path.relative_to(checkout / "results").as_posix()
            # Hidden folders hold the parts of killed or failed jobs.
            passing = re.search(r"/(logs|benchmarks|\.[^/]+\.parts)/", name)
            if path.is_file() and not passing:
                found[name] = (path.stat().st_size, path.stat().st_mtime_ns)
        return found

    return take


# What the smoke run made


@pytest.fixture(scope="session")
def folder(smoke) -> Path:
    return smoke / "results" / "smoke"


@pytest.fixture(scope="session")
def trained_block_size(smoke) -> int:
    config = json.loads((smoke / "workflow/resources/pocket/draft/config.json").read_text())
    return config["block_size"]


@pytest.fixture(scope="session")
def candidates(trained_block_size) -> list[int]:
    return list(range(trained_block_size - 2, trained_block_size + 3))


@pytest.fixture(scope="session")
def swept(trained_block_size, candidates) -> list[int]:
    B = trained_block_size
    return sorted({*candidates, max(1, B // 2), B - 3, B + 3, 2 * B})


@pytest.fixture(scope="session")
def prompts(folder) -> pd.DataFrame:
    tables = [read_table(folder / f"prompts/{name}.parquet", PROMPTS) for name in DATASETS]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def pairs(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"pairs/{variant}.parquet", PAIRS)


@pytest.fixture(scope="session")
def trajectories(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"trajectories/{variant}.parquet", TRAJECTORIES)


@pytest.fixture(scope="session")
def sweep(folder, variant, swept) -> pd.DataFrame:
    files = [folder / f"sweep/{variant}/B{b}.parquet" for b in swept]
    return pd.concat([read_table(path, SWEEP) for path in files], ignore_index=True)


@pytest.fixture(scope="session")
def evaluation(folder, variant) -> pd.DataFrame:
    return read_table(folder / f"evaluation/{variant}.parquet", EVALUATION)


@pytest.fixture(scope="session")
def manifest(folder) -> dict:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
