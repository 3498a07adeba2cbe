"""What a policy could reach at best: the clairvoyant choice of every round, and the oracle's.

Both read an acceptance table, which knows what every block would have given. They are bounds, not
policies: nothing that decodes can know the text in advance.
"""

# Shapes: a = anchors of the text, c = choices.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from blockpilot.acceptance import UNKNOWN, AcceptanceTable, walk
from blockpilot.errors import bad_input

Choice = tuple[int, int]  # planned (draft_size, verify_size) of a round
RoundCost = Callable[[int, int, int], float]  # of (draft_size, verify_size, anchor), shortened


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A text's cheapest rounds.

    Attributes:
        num_rounds: Rounds of the text.
        cost: Sum over the rounds: their number, or seconds.
        choices: Planned (draft_size, verify_size) of each round.
        num_committed: Committed tokens of each round.
    """

    num_rounds: int
    cost: float
    choices: list[Choice]
    num_committed: list[int]


def all_choices(block_sizes: Sequence[int], verify_shorter: bool = False) -> list[Choice]:
    """Return the (draft_size, verify_size) pairs of a round, ascending.

    Args:
        block_sizes: Sizes of a draft, and of what is verified.
        verify_shorter: Whether a round may verify less than it drafted.
    """
    sizes = sorted(set(block_sizes))
    return [(d, v) for d in sizes for v in sizes if v == d or (verify_shorter and v < d)]


def clairvoyant(
    table: AcceptanceTable, choices: Sequence[Choice], round_cost: RoundCost | None = None
) -> Bound:
    """Return the cheapest rounds of a text when every round may take any of `choices`.

    Dynamic programming over the anchors, from the last to the first. Among equal costs the fewest
    rounds win, then the smallest sizes.

    Args:
        table: Of one text.
        choices: Planned (draft_size, verify_size) pairs, as from `all_choices`.
        round_cost: Cost of a round of these sizes, as shortened at its anchor; 1 if None.

    Raises:
        BlockPilotError: If there are no choices, one is impossible, or the table does not know
            a block that a round could come to.
    """
    choices = _checked(table, choices)
    sizes = _shortened(table, choices)
    counts = _committed(table, sizes)
    cost = np.zeros(table.num_anchors + 1)
    rounds = np.zeros(table.num_anchors + 1, dtype=int)
    picks = np.zeros(table.num_anchors, dtype=int)
    for anchor in reversed(_reachable(table, choices, counts)):
        after = anchor + counts[anchor]
        totals = _costs(round_cost, sizes[anchor], anchor) + cost[after]
        best = np.lexsort((rounds[after], totals))[0]  # stable: the first of equals
        picks[anchor], cost[anchor] = best, totals[best]
        rounds[anchor] = rounds[after[best]] + 1
    planned, committed = _follow(picks, choices, counts)
    return Bound(
        num_rounds=len(planned), cost=float(cost[0]), choices=planned, num_committed=committed
    )


def walk_cost(
    table: AcceptanceTable, draft_size: int, verify_size: int, round_cost: RoundCost | None
) -> float:
    """Return the cost of the same choice in every round, on the scale of `clairvoyant`.

    Args:
        table: Of one text.
        draft_size: Planned block size of the draft.
        verify_size: Planned verified tokens.
        round_cost: As for `clairvoyant`.

    Raises:
        BlockPilotError: If the choice is impossible or the table does not know one of its blocks.
    """
    choices = _checked(table, [(draft_size, verify_size)])
    sizes = _shortened(table, choices)
    costs, anchor = [], 0
    for count in walk(table, draft_size, verify_size):
        costs.extend(_costs(round_cost, sizes[anchor], anchor))
        anchor += count
    # From the last round, as `clairvoyant` adds: rounding then cannot push it above this sum.
    return float(sum(reversed(costs), 0.0))


def best_fixed_choice(table: AcceptanceTable, block_sizes: Sequence[int]) -> tuple[int, int]:
    """Return the per-prompt oracle: (block size with the fewest rounds, its rounds).

    The smallest size on ties.

    Raises:
        BlockPilotError: If there are no block sizes or the table does not know one of them.
    """
    choices = _checked(table, all_choices(block_sizes))
    rounds, size = min((len(walk(table, size)), size) for size, _ in choices)
    return size, rounds


def _checked(table: AcceptanceTable, choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices ascending and without repetition, if they are possible."""
    if not len(choices):
        remedy = "Pass all_choices(block_sizes)."
        raise bad_input("choices", choices, "at least one (draft_size, verify_size)", remedy)
    largest = max(table.block_sizes, default=1)
    for draft, verify in choices:
        if not 1 <= verify <= draft:
            remedy = "A round verifies at most what it drafted."
            raise bad_input("a choice", (draft, verify), "1 <= verify_size <= draft_size", remedy)
        # Blocks are longest at the first anchor.
        if table.num_anchors and table.shortened(draft, 0) > largest:
            allowed = f"draft sizes up to {largest}, the table's largest"
            raise bad_input("a choice", (draft, verify), allowed, "Replay the text for this size.")
    return sorted({(int(draft), int(verify)) for draft, verify in choices})


def _shortened(table: AcceptanceTable, choices: Sequence[Choice]) -> np.ndarray:  # [a, c, 2]
    """Return the sizes that each choice has at each anchor."""
    every = range(1 + max(draft for draft, _ in choices))
    lookup = [[table.shortened(size, anchor) for size in every] for anchor in _anchors(table)]
    lookup = np.array(lookup, dtype=int).reshape(table.num_anchors, len(every))
    return lookup[:, np.array(choices)]


def _committed(table: AcceptanceTable, sizes: np.ndarray) -> np.ndarray:  # [a, c]
    """Return `table.num_committed` of all cells at once; 0 where the table does not know.

    A call per cell would take most of a bound's time.
    """
    drafts, verifies = sizes[..., 0], sizes[..., 1]
    anchors = np.array(_anchors(table), dtype=int)[:, None]
    rows = np.vstack([np.zeros((1, table.num_anchors), dtype=int), table.accepted])  # row 0: size 1
    accepted = rows[drafts - 1, anchors]
    counts = np.minimum(np.minimum(accepted, verifies - 1) + 1, table.num_anchors - anchors)
    return np.where(accepted == UNKNOWN, 0, counts)


def _reachable(table: AcceptanceTable, choices: Sequence[Choice], counts: np.ndarray) -> list[int]:
    """Return the anchors that rounds can come to, ascending; all their blocks are known."""
    reachable = np.zeros(table.num_anchors + 1, dtype=bool)
    reachable[0] = True
    for anchor in _anchors(table):
        if not reachable[anchor]:
            continue
        if not counts[anchor].all():
            table.num_committed(*choices[int(counts[anchor].argmin())], anchor)  # raises
        reachable[anchor + counts[anchor]] = True
    return np.flatnonzero(reachable[:-1]).tolist()


def _costs(round_cost: RoundCost | None, sizes: np.ndarray, anchor: int) -> np.ndarray:  # [c]
    """Return what a round costs at an anchor for each of the sizes [c, 2]."""
    if round_cost is None:
        return np.ones(len(sizes))
    return np.array([round_cost(draft, verify, anchor) for draft, verify in sizes.tolist()])


def _follow(
    picks: np.ndarray,  # [a] index of the choice
    choices: Sequence[Choice],
    counts: np.ndarray,  # [a, c]
) -> tuple[list[Choice], list[int]]:
    """Return the choices and committed tokens of the rounds from the first anchor on."""
    planned, committed, anchor = [], [], 0
    while anchor < len(picks):
        planned.append(choices[picks[anchor]])
        committed.append(int(counts[anchor, picks[anchor]]))
        anchor += committed[-1]
    return planned, committed


def _anchors(table: AcceptanceTable) -> range:
    return range(table.num_anchors)
