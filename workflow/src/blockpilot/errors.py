"""One shape for every complaint: what, where, what is allowed, what to do."""

from __future__ import annotations


class BlockPilotError(Exception):
    """Input that cannot be used; the message names the place, the value and the remedy."""


def bad_input(where: str, value: object, allowed: str, remedy: str) -> BlockPilotError:
    """Return an error to raise, e.g. `raise bad_input("sweep.radius", 0, ">= 1", "set it")`."""
    return BlockPilotError(f"{where} is {value!r}; allowed: {allowed}. {remedy}")
