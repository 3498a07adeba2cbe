"""Progress of long work, readable on a terminal and in a job's log file alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def track(
    items: Iterable | None = None,
    *,
    description: str,
    total: int | None = None,
    initial: int = 0,
    unit: str = "it",
) -> Any:
    """Return a progress bar over `items`: live on a terminal, a line every ten seconds in a log."""
    terminal = sys.stderr.isatty()
    return tqdm(
        items,
        desc=description,
        total=total,
        initial=initial,
        unit=unit,
        ascii=not terminal,
        dynamic_ncols=terminal,
        ncols=None if terminal else 100,
        mininterval=0.5 if terminal else 10,
        maxinterval=10,
    )
