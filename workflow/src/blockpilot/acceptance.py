"""The acceptance table of one committed text: what every draft at every anchor would have given.

Plain arrays, no tensors. Walking the table gives the rounds of any block size; policies and
bounds (`bounds`) read the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.rounds import count_committed, last_block_size

UNKNOWN = -1


@dataclass(kw_only=True, slots=True)
class AcceptanceTable:
    """Accepted drafts per block size and anchor of one text.

    Attributes:
        block_sizes: Draft sizes, ascending; the rows of `accepted`. Without 1, which drafts none.
        accepted: [sizes, anchors] int8, before clipping; anchor = index in the output ids, the
            last token is no anchor. `UNKNOWN` where nothing was evaluated.
        limit_tokens: Most output tokens the request could have emitted; blocks shorten before it.
    """

    block_sizes: tuple[int, ...]
    accepted: np.ndarray
    limit_tokens: int

    @classmethod
    def from_row(
        cls, block_sizes: Sequence[int], accepted: Sequence[Sequence[int]], limit_tokens: int
    ) -> AcceptanceTable:
        """Return the table of a row of `acceptance`, which leaves out unknown sizes."""
        num_anchors = len(accepted[0]) if len(accepted) else 0
        table = cls.empty(block_sizes, num_anchors + 1, limit_tokens)
        for size, known in zip(block_sizes, accepted, strict=True):
            table.accepted[size - 2] = known
        return table

    def to_row(self) -> dict:
        """Return `block_sizes` and `accepted` of the sizes of which anything is known."""
        known = (self.accepted != UNKNOWN).any(axis=1)
        sizes = [size for size, is_known in zip(self.block_sizes, known, strict=True) if is_known]
        return {"block_sizes": sizes, "accepted": list(self.accepted[known])}

    @classmethod
    def empty(
        cls, block_sizes: Sequence[int], num_tokens: int, limit_tokens: int
    ) -> AcceptanceTable:
        """Return a table of `num_tokens` output ids in which nothing is known yet.

        Blocks shorten near the limit, so every smaller size may occur too and gets a row.
        """
        sizes = tuple(range(2, max(block_sizes, default=1) + 1))
        shape = (len(sizes), max(num_tokens - 1, 0))
        return cls(
            block_sizes=sizes,
            accepted=np.full(shape, UNKNOWN, dtype=np.int8),
            limit_tokens=limit_tokens,
        )

    @property
    def num_anchors(self) -> int:
        """Return the number of anchors: every output token but the last."""
        return self.accepted.shape[1]

    def shortened(self, block_size: int, anchor: int) -> int:
        """Return the size that a block planned with `block_size` has at `anchor`."""
        return last_block_size(block_size, self.limit_tokens - anchor - 1)

    def num_accepted(self, draft_size: int, anchor: int) -> int:
        """Return the accepted drafts of a block of exactly `draft_size`, `UNKNOWN` if not known.

        Raises:
            BlockPilotError: If `draft_size` is below 1.
        """
        if draft_size < 1:
            raise bad_input("draft size", draft_size, "an integer >= 1", "1 drafts nothing.")
        if draft_size == 1:
            return 0
        inside = draft_size - 2 < len(self.accepted)
        return int(self.accepted[draft_size - 2, anchor]) if inside else UNKNOWN

    def num_committed(self, draft_size: int, verify_size: int, anchor: int) -> int:
        """Return the tokens a round commits that plans these sizes at `anchor`.

        Raises:
            BlockPilotError: If the table does not know the block.
        """
        draft_size = self.shortened(draft_size, anchor)
        verify_size = self.shortened(verify_size, anchor)
        accepted = self.num_accepted(draft_size, anchor)
        if accepted == UNKNOWN:
            raise BlockPilotError(
                f"the acceptance table knows no block of size {draft_size} at anchor {anchor}; "
                f"its sizes end at {len(self.accepted) + 1}. Replay the text for this size."
            )
        return count_committed(accepted, verify_size, self.num_anchors - anchor)


def walk(table: AcceptanceTable, draft_size: int, verify_size: int | None = None) -> list[int]:
    """Return the committed tokens of every round at a fixed size, as the decode loop would.

    Args:
        table: Of one text.
        draft_size: Planned block size of the draft.
        verify_size: Planned verified tokens, at most `draft_size`; the same if None.
    """
    verify_size = draft_size if verify_size is None else verify_size
    committed, anchor = [], 0
    while anchor < table.num_anchors:
        count = table.num_committed(draft_size, verify_size, anchor)
        committed.append(count)
        anchor += count
    return committed
