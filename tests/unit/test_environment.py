"""The pinned files agree with each other, with pyproject.toml and with what is installed."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = (
    "snakemake",
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "pyarrow",
    "matplotlib",
    "hydra-core",
)


def pinned(lines: list[str]) -> dict[str, str]:
    """Return the exact version per package of `name==version` lines; other lines are skipped."""
    matches = (re.fullmatch(r"([\w.\-]+)(?:\[[\w,]+\])?==([\w.]+)", line.strip()) for line in lines)
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def read_lock_lines() -> list[str]:
    text = (ROOT / "requirements.lock").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def read_conda_pip_lines() -> list[str]:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    return next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))


def read_declared() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for lines in project["optional-dependencies"].values() for line in lines]
    requirements = map(Requirement, project["dependencies"] + optional)
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_every_line_of_the_lock_is_one_exact_version_without_local_suffix():
    lines = read_lock_lines()
    assert len(pinned(lines)) == len(lines)


@pytest.mark.parametrize("package", REQUIRED)
def test_required_package_has_one_version_in_all_files(package):
    locked = pinned(read_lock_lines())
    conda = pinned(read_conda_pip_lines())
    assert package in locked, f"add {package}==VERSION to requirements.lock"
    assert conda.get(package) == locked[package], f"environment.yml and the lock differ: {package}"
    assert package in read_declared(), f"declare {package} in pyproject.toml"


@pytest.mark.parametrize("package", REQUIRED)
def test_installed_version_is_the_locked_one(package):
    installed = Version(version(package)).public  # "2.13.0" for 2.13.0+cpu
    assert installed == pinned(read_lock_lines())[package], "run `make setup`"


def test_the_lock_satisfies_every_declared_requirement():
    locked = pinned(read_lock_lines())
    unmet = {
        name: locked.get(name, "absent")
        for name, requirement in read_declared().items()
        if name not in locked or locked[name] not in requirement.specifier
    }
    assert not unmet, f"pyproject.toml asks for what requirements.lock does not give: {unmet}"


def test_conda_installs_the_whole_lock_and_the_package():
    lines = read_conda_pip_lines()
    assert "-r requirements.lock" in lines
    assert "-e ." in lines
