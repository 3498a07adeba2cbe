"""What a round commits. The one place that defines an acceptance length.

Plain integers, no tensors: a round reaches the host once, as two short lists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def count_accepted(proposal_ids: Sequence[int], posterior_ids: Sequence[int]) -> int:
    """Count the drafted tokens that the target agrees with, before the bonus token.

    Args:
        proposal_ids: The b-1 drafted tokens.
        posterior_ids: The target's token after each of the b block positions.

    Returns:
        Accepted drafts, in [0, b-1].

    Raises:
        ValueError: If posterior_ids is not one longer than proposal_ids.
    """
    if len(posterior_ids) != len(proposal_ids) + 1:
        raise ValueError(
            f"expected {len(proposal_ids) + 1} posterior ids for {len(proposal_ids)} drafts, "
            f"got {len(posterior_ids)}"
        )
    accepted = 0
    while accepted < len(proposal_ids) and proposal_ids[accepted] == posterior_ids[accepted]:
        accepted += 1
    return accepted


def commit(
    posterior_ids: Sequence[int],
    num_accepted: int,
    stop_ids: Collection[int],
    remaining_tokens: int,
) -> tuple[list[int], bool]:
    """Return (committed tokens, whether they end in a stop token).

    Committed are the accepted drafts and the bonus token, that is the posterior's first
    `num_accepted` + 1 tokens, clipped after the first stop token and at `remaining_tokens`.
    """
    committed: list[int] = []
    for token in posterior_ids[: min(num_accepted + 1, remaining_tokens)]:
        committed.append(int(token))
        if token in stop_ids:
            return committed, True
    return committed, False


def last_block_size(block_size: int, remaining_tokens: int) -> int:
    """Return the size of the next block when only `remaining_tokens` may still be emitted.

    One more slot than tokens, as in the public `dflash` package: the shorter block changes the
    proposals, so the rule is part of the method and not a detail.
    """
    return min(block_size, remaining_tokens + 1)


def limit_tokens(num_tokens: int, stop_reason: str, max_new_tokens: int) -> int:
    """Return the most output tokens that a decoded request could have had.

    Another engine may have stopped a text earlier than `max_new_tokens`: its own length is the
    limit then, as it is for every text that was stopped by length.
    """
    return num_tokens if stop_reason == "length" else max_new_tokens


def count_committed(num_accepted: int, verify_size: int, text_tokens_left: int) -> int:
    """Return the tokens a round commits when the text that follows is already known.

    Args:
        num_accepted: Drafts that agree with the text, before clipping.
        verify_size: Verified tokens, the anchor included; at most `verify_size` - 1 drafts count.
        text_tokens_left: Tokens of the text behind the anchor: it ends at its stop token or at
            `max_new_tokens`, and so does the round.
    """
    return min(min(num_accepted, verify_size - 1) + 1, text_tokens_left)


def tau(num_committed: Sequence[int]) -> float:
    """Return committed tokens per round of one request; NaN if it had no round."""
    return sum(num_committed) / len(num_committed) if len(num_committed) else float("nan")


def verified_sizes(block_size: int, num_committed: Sequence[int], max_new_tokens: int) -> list[int]:
    """Return the verified tokens of each round of a request at one block size.

    They equal the block size until `max_new_tokens` leaves no room (`last_block_size`).
    """
    sizes, remaining = [], max_new_tokens - 1
    for count in num_committed:
        sizes.append(last_block_size(block_size, remaining))
        remaining -= count
    return sizes
