"""What every workflow job does first: log to its file as well, and fail with a readable message."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from blockpilot.devices import lease_device
from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.parts import fingerprint
from blockpilot.provenance import digest_files

OUTPUT = "BLOCKPILOT_JOB_OUTPUT"


def fingerprint_job(params: Mapping, inputs: Iterable[str]) -> str:
    """Return what the parts of a job's tables depend on: its params, its inputs and this library.

    A job that was killed resumes only where all of them are as they were.
    """
    library = digest_files(sorted(Path(__file__).parent.rglob("*.py")))
    return fingerprint([library, dict(params)], inputs)


class _Tee:
    """Writes to all its streams; poses as a file, so that progress comes in lines."""

    def __init__(self, *streams: TextIO) -> None:
        self.streams = streams

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


def start_job(log: str, gpu: int = 0) -> None:
    """Copy standard output and error to `log`, shorten errors, and wait for a GPU if it needs one.

    With BLOCKPILOT_JOB_OUTPUT=log nothing is shown outside the log.

    Args:
        log: Path of the job's log file.
        gpu: Devices that the job needs: 1 leases a free one until the process ends.

    Raises:
        BlockPilotError: If more than one device is asked for, or none can be leased.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    file = open(log, "w", encoding="utf-8")  # noqa: SIM115  (open until the job ends)
    if os.environ.get(OUTPUT) == "log":
        sys.stderr = sys.stdout = _Tee(file)
    else:
        sys.stderr, sys.stdout = _Tee(sys.stderr, file), _Tee(sys.stdout, file)
    sys.excepthook = _report
    if gpu not in (0, 1):
        raise bad_input("resources.gpu", gpu, "0 or 1", "A job uses one device; run more jobs.")
    if gpu:
        lease_device()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, BlockPilotError):
        print(f"error: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
