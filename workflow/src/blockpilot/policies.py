"""Policies choose the block size of a request; `begin` is called once, after prefill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from blockpilot.errors import bad_input


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a policy may look at before the first round."""

    prompt_ids: Sequence[int]
    prefill_logits: Tensor  # [V] p(x)
    prefill_hidden: Tensor  # [H] h(x)
    domain: str | None = None  # for analysis only


class Policy(Protocol):
    """Anything that chooses block sizes."""

    name: str
    uses_draft: bool  # False: the draft is never touched, as in `ar`

    def begin(self, request: Request) -> int:
        """Return the block size of the request's first round, at least 1."""


class ArPolicy:
    """Autoregressive decoding: block size 1, no draft, no features."""

    name = "ar"
    uses_draft = False

    def begin(self, request: Request) -> int:
        """Return 1."""
        return 1


class FixedPolicy:
    """The same block size for every request."""

    uses_draft = True

    def __init__(self, block_size: int, name: str | None = None) -> None:
        if block_size < 1:
            raise bad_input("block_size", block_size, "an integer >= 1", "1 is autoregressive.")
        self.block_size = int(block_size)
        self.name = name or f"fixed:{block_size}"

    def begin(self, request: Request) -> int:
        """Return the fixed block size."""
        return self.block_size


class TablePolicy:
    """A block size per prompt, looked up: the oracle, and every other choice made offline."""

    uses_draft = True

    def __init__(self, name: str, block_size_by_prompt: Mapping[tuple[int, ...], int]) -> None:
        self.name = name
        self.block_size_by_prompt = block_size_by_prompt

    def begin(self, request: Request) -> int:
        """Return the prompt's block size.

        Raises:
            BlockPilotError: If the table has no row for the prompt.
        """
        try:
            return self.block_size_by_prompt[tuple(request.prompt_ids)]
        except KeyError:
            raise bad_input(
                f"policy {self.name}: prompt",
                list(request.prompt_ids)[:8],
                "a prompt of the table",
                "Label the prompt first.",
            ) from None


class SelectorPolicy:
    """A trained selector that reads p(x) or h(x)."""

    uses_draft = True

    def __init__(self, selector, name: str = "blockpilot") -> None:
        self.selector = selector
        self.name = name

    def begin(self, request: Request) -> int:
        """Return the selector's choice."""
        return self.selector.choose(request.prefill_logits, request.prefill_hidden)
