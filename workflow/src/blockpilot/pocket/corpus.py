"""Draws conversations of the three domains, each from its own seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from blockpilot.pocket import arithmetic, knowledge, programs

Turn = tuple[str, str]  # (user text, assistant text)

GENERATORS: dict[str, Callable[[random.Random], list[Turn]]] = {
    "arithmetic": arithmetic.make_conversation,
    "code": programs.make_conversation,
    "prose": knowledge.make_conversation,
}


def draw_conversation(domain: str, seed: int, index: int) -> list[Turn]:
    """Return conversation `index` of `domain`; a function of its three arguments alone.

    Raises:
        ValueError: If the domain is unknown.
    """
    if domain not in GENERATORS:
        raise ValueError(f"domain is {domain!r}; allowed: {', '.join(GENERATORS)}")
    return GENERATORS[domain](random.Random(f"{domain}/{seed}/{index}"))


def draw_corpus(seed: int, count_per_domain: int) -> Iterator[tuple[str, list[Turn]]]:
    """Yield (domain, conversation), the domains taking turns."""
    for index in range(count_per_domain):
        for domain in GENERATORS:
            yield domain, draw_conversation(domain, seed, index)
