"""The candidate set around the trained block size, and the choice within it."""

from __future__ import annotations

from collections.abc import Sequence

from blockpilot.errors import bad_input


def candidate_set(trained_block_size: int, radius: int) -> list[int]:
    """Return {B-k, ..., B+k} in ascending order.

    Raises:
        BlockPilotError: If the radius is below 1 or the smallest candidate below 1.
    """
    if radius < 1:
        raise bad_input("sweep.radius", radius, "an integer >= 1", "A set of one needs no choice.")
    if trained_block_size - radius < 1:
        raise bad_input(
            "sweep.radius",
            radius,
            f"1 to {trained_block_size - 1} for a draft trained at block size {trained_block_size}",
            "Candidates below 1 do not exist.",
        )
    return list(range(trained_block_size - radius, trained_block_size + radius + 1))


def best_block_size(objective: Sequence[float], block_sizes: Sequence[int]) -> tuple[int, bool]:
    """Return (B*, is_tie): the block size with the largest objective, the smallest on ties.

    Args:
        objective: tau or modelled tokens per second, one per block size.
        block_sizes: The sizes the objective belongs to, in any order.
    """
    largest = max(objective)
    winners = [b for value, b in zip(objective, block_sizes, strict=True) if value == largest]
    return min(winners), len(winners) > 1
