"""One request, round by round: which tokens were drafted, and which the target added.

What a round commits is defined in `rounds` alone; here known rounds are only told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from blockpilot.acceptance import UNKNOWN, AcceptanceTable
from blockpilot.errors import bad_input
from blockpilot.rounds import count_committed, tau, verified_sizes

# What decoders give for bytes that are no whole character.
HALF_CHARACTER = "\ufffd"

Decode = Callable[[Sequence[int]], str]  # token ids to text


class Role(StrEnum):
    """What a token of the text was."""

    PREFILL = "prefill"  # the first token, of no round
    DRAFT = "draft"  # drafted and accepted
    BONUS = "bonus"  # the target's own, which ends a round
    LAST = "last"  # the text ends inside the round: draft or bonus, the run does not say


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A block that was drafted, verified and committed.

    Attributes:
        index: From 1.
        anchor: Index of the block's first token in the output ids; it is known before the round.
        drafted: Tokens the draft proposed, the verified size less the anchor.
        num_committed: Tokens added to the text, behind the anchor.
        accepted: Those of them that were drafted; None where the text ends inside the round and
            the run does not tell whether its last token was drafted.
    """

    index: int
    anchor: int
    drafted: int
    num_committed: int
    accepted: int | None

    @property
    def bonus(self) -> int | None:
        """Return 1 if the round ends in the target's own token, 0 if the text ended before it."""
        return None if self.accepted is None else self.num_committed - self.accepted

    @property
    def rejected(self) -> int | None:
        """Return the drafts that are not in the text: refused, behind a refused one or its end."""
        return None if self.accepted is None else self.drafted - self.accepted

    @property
    def roles(self) -> list[Role]:
        """Return the role of every committed token."""
        last = {None: Role.LAST, 0: Role.DRAFT, 1: Role.BONUS}[self.bonus]
        return [Role.DRAFT] * (self.num_committed - 1) + [last]


def split_rounds(
    num_committed: Sequence[int],
    block_size: int,
    num_tokens: int,
    limit_tokens: int,
    acceptance: AcceptanceTable | None = None,
) -> list[Round]:
    """Return the rounds of one request at one block size.

    Args:
        num_committed: Tokens per round, as swept.
        block_size: Planned verified tokens; blocks shorten before the limit.
        num_tokens: Of the whole text, its first token included.
        limit_tokens: Most output tokens of the request (`rounds.limit_tokens`).
        acceptance: Of the same text; tells how the last round ended.

    Raises:
        BlockPilotError: If the rounds do not add up to the text.
    """
    if 1 + sum(num_committed) != num_tokens:
        raise bad_input(
            f"committed tokens at block size {block_size}, with the first token",
            1 + sum(num_committed),
            f"{num_tokens}, the length of the text",
            "Take rows of the sweep that have this text (equals_ar).",
        )
    sizes = verified_sizes(block_size, num_committed, limit_tokens)
    rounds, anchor = [], 0
    for index, (count, size) in enumerate(zip(num_committed, sizes, strict=True), start=1):
        is_open = anchor + 1 + count == num_tokens and count < size
        accepted = _end(acceptance, size, anchor, count, num_tokens) if is_open else count - 1
        rounds.append(
            Round(
                index=index,
                anchor=anchor,
                drafted=size - 1,
                num_committed=int(count),
                accepted=accepted,
            )
        )
        anchor += int(count)
    return rounds


def _end(
    acceptance: AcceptanceTable | None, size: int, anchor: int, count: int, num_tokens: int
) -> int | None:
    """Return the accepted drafts in the text of a last round that may have been clipped."""
    agreeing = UNKNOWN if acceptance is None else acceptance.num_accepted(size, anchor)
    # A live round may differ from the replayed table by a near-tie: better to say nothing then.
    if agreeing == UNKNOWN or count_committed(agreeing, size, num_tokens - 1 - anchor) != count:
        return None
    return min(agreeing, int(count))


def token_texts(output_ids: Sequence[int], decode: Decode) -> list[str]:
    """Return the text that every token adds; joined, they are the decoded text.

    A character that several tokens share belongs to its last token, and the others add nothing.
    """
    texts, done, text = [], 0, ""
    for end in range(1, len(output_ids) + 1):
        text = decode(list(output_ids[:end]))
        whole = max(len(text.rstrip(HALF_CHARACTER)), done)
        texts.append(text[done:whole])
        done = whole
    if texts:
        texts[-1] += text[done:]
    return texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Walkthrough:
    """One request with its rounds at every swept block size.

    Attributes:
        prompt_id: Hash of the prompt.
        seed: Of the sampling noise.
        prompt: Text of the prompt.
        tokens: Text of every output token.
        limit_tokens: Most output tokens that the request could have had.
        num_committed: Block size to committed tokens per round, ascending.
        acceptance: Of this text, where the run has it.
    """

    prompt_id: str
    seed: int
    prompt: str
    tokens: list[str]
    limit_tokens: int
    num_committed: dict[int, list[int]]
    acceptance: AcceptanceTable | None = None

    @property
    def block_sizes(self) -> list[int]:
        """Return the swept block sizes, ascending."""
        return list(self.num_committed)

    @property
    def tau_by_block_size(self) -> dict[int, float]:
        """Return tau of this request at every swept block size."""
        return {size: tau(counts) for size, counts in self.num_committed.items()}

    def rounds(self, block_size: int) -> list[Round]:
        """Return the rounds at one of the swept block sizes.

        Raises:
            BlockPilotError: If it was not swept.
        """
        if block_size not in self.num_committed:
            allowed = ", ".join(map(str, self.block_sizes))
            raise bad_input("block size", block_size, allowed, "Choose one that was swept.")
        counts = self.num_committed[block_size]
        limit = self.limit_tokens
        return split_rounds(counts, block_size, len(self.tokens), limit, self.acceptance)

    def text(self, one: Round) -> str:
        """Return the text that a round commits."""
        return "".join(self.tokens[one.anchor + 1 : one.anchor + 1 + one.num_committed])

    def table(self, block_size: int) -> pd.DataFrame:
        """Return one row per round, by its index; what the run does not say is missing.

        Columns: `anchor`, `drafted`, `accepted`, `rejected`, `bonus`, `num_committed`, `text`.
        """
        names = ["anchor", "drafted", "accepted", "rejected", "bonus", "num_committed"]
        rounds = self.rounds(block_size)
        rows = [{name: getattr(one, name) for name in names} for one in rounds]
        index = pd.Index([one.index for one in rounds], name="round")
        frame = pd.DataFrame(rows, index=index, columns=names).astype("Int64")
        return frame.assign(text=[self.text(one) for one in rounds])
