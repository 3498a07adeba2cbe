"""What every workflow job does first: log to its file as well, and fail with a readable message."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from blockpilot.errors import BlockPilotError
from blockpilot.parts import fingerprint
from blockpilot.provenance import digest_files


def fingerprint_job(params: Mapping, inputs: Iterable[str]) -> str:
    """Return what the parts of a job's tables depend on: its params, its inputs and this library.

    A job that was killed resumes only where all of them are as they were.
    """
    library = digest_files(sorted(Path(__file__).parent.rglob("*.py")))
    return fingerprint([library, dict(params)], inputs)


class _Tee:
    """Writes to a terminal and to a log file; poses as a file, so that progress comes in lines."""

    def __init__(self, first: TextIO, second: TextIO) -> None:
        self.streams = (first, second)

    def write(self, text: str) -> int:
        for stream in self.streams:
            stream.write(text)
            stream.flush()
        return len(text)

    def flush(self) -> None:
        for stream in self.streams:
            stream.flush()

    def isatty(self) -> bool:
        return False


def start_job(log: str) -> None:
    """Copy standard output and error to `log` and shorten errors that users can mend.

    Args:
        log: Path of the job's log file.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    file = open(log, "w", encoding="utf-8")  # noqa: SIM115  (open until the job ends)
    sys.stderr = _Tee(sys.stderr, file)
    sys.stdout = _Tee(sys.stdout, file)
    sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, BlockPilotError):
        print(f"error: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
