"""What the ablations vary, and the settings that are compared.

Without pandas: every job parses the rules again, which list the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

KNOBS = ("radius", "depth", "width", "features")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What an ablation varies: the radius of the candidates and the selector's make."""

    radius: int
    depth: int
    width: int
    features: str


def list_settings(base: Setting, values: Mapping[str, Sequence]) -> list[tuple[str, Setting]]:
    """Return (knob, setting) of every ablation: `base` with one knob turned.

    Args:
        base: The default setting; its own value joins a knob's values where it is missing.
        values: Per knob the values to compare.
    """
    listed = []
    for knob in KNOBS:
        own = getattr(base, knob)
        several = list(dict.fromkeys([*values[knob], own]))
        if not isinstance(own, str):
            several.sort()
        listed += [(knob, replace(base, **{knob: value})) for value in several]
    return listed


def distinct_settings(listed: Sequence[tuple[str, Setting]]) -> list[Setting]:
    """Return each setting once: the default one is part of every ablation."""
    return list(dict.fromkeys(setting for _, setting in listed))


def setting_of(row: object) -> Setting:
    """Return the setting of a table's row, whose numbers may have become floats."""
    numbers = {knob: int(getattr(row, knob)) for knob in KNOBS if knob != "features"}
    return Setting(**numbers, features=row.features)


def read_settings(listed: Sequence[tuple[str, Mapping]]) -> list[tuple[str, Setting]]:
    """Return what `list_settings` returned, from the plain containers of a rule's params."""
    return [(knob, Setting(**own)) for knob, own in listed]
