"""Where an artifact came from, and how it reaches its path whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "blockpilot",
    "snakemake",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "pandas",
    "pyarrow",
    "matplotlib",
    "hydra-core",
)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary sibling that becomes `path` only if the block succeeds.

    A killed job therefore leaves a missing file, never half a file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        # mkstemp makes private files; artifacts are shared like any other file.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented, key-sorted JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def digest_files(paths: list[str | Path]) -> str:
    """Return a short sha256 over the names and contents of files, in the given order."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(Path(path).name.encode())
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:16]


def package_versions() -> dict[str, str]:
    """Return the installed version of every package a result may depend on."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def git_revision(folder: str | Path = ".") -> str:
    """Return the commit of `folder`, with "+changes" if files differ, or "unknown"."""
    try:
        revision = _git(folder, "rev-parse", "HEAD")
        return revision + ("+changes" if _git(folder, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: str | Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine_facts() -> dict[str, Any]:
    """Return the processor's name and core count, as shown in model cards and manifests."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {"processor": name, "cores": os.cpu_count(), "system": platform.platform()}
