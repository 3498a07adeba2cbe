"""What the smoke experiment consists of; `conftest` runs it and reads its tables."""

from __future__ import annotations

import pandas as pd

DATASETS = ("arithmetic", "code", "human_eval", "prose")
DOMAINS = ("arithmetic", "code", "prose")
VARIANTS = ("T0", "T1")
KEY = ["prompt_id", "seed"]
# Float32 passes of other shapes round differently: a near-tie may flip a token or a draft.
LEAST_EQUAL_SHARE = 0.9


def as_lists(values: pd.Series) -> list[list]:
    """Return arrays as lists, which compare by value."""
    return [list(value) for value in values]
