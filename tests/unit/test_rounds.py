"""What a round commits, tau, the candidate set and the choice within it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from blockpilot.candidates import best_block_size, candidate_set
from blockpilot.errors import BlockPilotError
from blockpilot.rounds import (
    commit,
    count_accepted,
    count_committed,
    last_block_size,
    limit_tokens,
    tau,
    verified_sizes,
)


@pytest.mark.parametrize(
    ("proposals", "posterior", "accepted"),
    [
        ([], [5], 0),
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [9, 2, 3, 4], 0),
        ([1, 2, 3], [1, 9, 3, 4], 1),  # a later match does not count
        ([1, 2, 3], [1, 2, 9, 3], 2),
        ([7, 7], [7, 8, 7], 1),
    ],
)
def test_accepted_drafts_are_the_longest_matching_prefix(proposals, posterior, accepted) -> None:
    assert count_accepted(proposals, posterior) == accepted


@pytest.mark.parametrize(("proposals", "posterior"), [([1, 2], [1, 2]), ([], []), ([1], [1, 2, 3])])
def test_the_posterior_has_one_token_more_than_the_proposals(proposals, posterior) -> None:
    with pytest.raises(ValueError, match=f"expected {len(proposals) + 1} posterior ids"):
        count_accepted(proposals, posterior)


@pytest.mark.parametrize(
    ("num_accepted", "stop_ids", "remaining", "committed"),
    [
        (0, (), 9, ([4], False)),
        (2, (), 9, ([4, 5, 6], False)),
        (3, (), 9, ([4, 5, 6, 5], False)),
        (3, {5}, 9, ([4, 5], True)),  # clipped after the first stop, which is emitted
        (3, [6, 4], 9, ([4], True)),
        (1, {6}, 9, ([4, 5], False)),  # a stop token that was not accepted does not count
        (2, {6}, 9, ([4, 5, 6], True)),  # the bonus token may be the stop
        (3, (), 2, ([4, 5], False)),
        (3, {6}, 2, ([4, 5], False)),  # the limit comes before the stop
        (3, {5}, 2, ([4, 5], True)),
        (3, (), 0, ([], False)),
    ],
)
def test_commit_clips_at_the_stop_token_and_at_the_limit(
    num_accepted, stop_ids, remaining, committed
) -> None:
    assert commit([4, 5, 6, 5], num_accepted, stop_ids, remaining) == committed


def test_committed_tokens_are_plain_integers() -> None:
    tokens, _ = commit(np.array([4, 5, 6]), 2, (), 9)
    assert [type(token) for token in tokens] == [int, int, int]


@pytest.mark.parametrize(
    ("block_size", "remaining", "size"),
    [(8, 100, 8), (8, 8, 8), (8, 7, 8), (8, 6, 7), (8, 1, 2), (1, 1, 1), (2, 1, 2), (1, 50, 1)],
)
def test_the_last_block_has_one_slot_more_than_tokens_left(block_size, remaining, size) -> None:
    assert last_block_size(block_size, remaining) == size


@pytest.mark.parametrize(
    ("num_accepted", "verify_size", "left", "committed"),
    [
        (0, 1, 9, 1),
        (0, 8, 9, 1),  # the bonus token
        (3, 4, 9, 4),
        (3, 8, 9, 4),
        (3, 3, 9, 3),  # the last accepted draft is not verified; its token is the bonus
        (7, 1, 9, 1),  # without a verified draft a round is a step of `ar`
        (3, 4, 4, 4),
        (3, 4, 3, 3),  # the text ends with an accepted draft: no bonus
        (3, 4, 1, 1),
        (0, 4, 1, 1),
        (5, 3, 2, 2),
    ],
)
def test_committed_tokens_of_a_known_text(num_accepted, verify_size, left, committed) -> None:
    assert count_committed(num_accepted, verify_size, left) == committed


def test_a_known_text_is_committed_as_the_loop_commits_it() -> None:
    stop, drafted_wrongly = 99, -1
    for left, agreeing, verify in itertools.product(range(1, 9), range(8), range(1, 9)):
        follows = [*range(left - 1), stop]  # behind the anchor
        posterior = [*follows, *range(200, 210)][:verify]
        drafts = [*posterior[:agreeing], *[drafted_wrongly] * 9][: verify - 1]
        expected, _ = commit(posterior, count_accepted(drafts, posterior), {stop}, 100)
        found = count_committed(agreeing, verify, left)
        assert found == len(expected), (left, agreeing, verify)
        limited, _ = commit(posterior, count_accepted(drafts, posterior), (), left)
        assert found == len(limited), (left, agreeing, verify)


def test_the_limit_of_a_text_is_its_own_length_unless_it_stopped_by_itself() -> None:
    assert limit_tokens(12, "stop", 64) == 64
    assert limit_tokens(64, "length", 64) == 64
    assert limit_tokens(40, "length", 64) == 40  # cut by another engine


def test_verified_sizes_shorten_with_what_is_left() -> None:
    assert verified_sizes(4, [4, 1, 2], 64) == [4, 4, 4]
    assert verified_sizes(4, [4, 1, 2], 8) == [4, 4, 3]
    assert verified_sizes(4, [4, 2, 1], 8) == [4, 4, 2]
    assert verified_sizes(1, [1, 1], 3) == [1, 1]
    assert verified_sizes(4, [], 1) == []


def test_tau_is_committed_tokens_per_round() -> None:
    assert tau([3, 1, 4, 1]) == 2.25
    assert tau([1]) == 1.0
    assert math.isnan(tau([]))


def test_the_candidate_set_surrounds_the_trained_size() -> None:
    assert candidate_set(8, 2) == [6, 7, 8, 9, 10]
    assert candidate_set(2, 1) == [1, 2, 3]
    assert candidate_set(4, 3) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("radius", [0, -1])
def test_a_candidate_set_of_one_is_refused(radius) -> None:
    with pytest.raises(BlockPilotError, match=rf"sweep\.radius is {radius}; allowed: .*>= 1"):
        candidate_set(8, radius)


def test_candidates_below_one_are_refused() -> None:
    with pytest.raises(BlockPilotError, match=r"sweep\.radius is 8; allowed: 1 to 7 .*size 8"):
        candidate_set(8, 8)


def test_best_block_size_is_the_smallest_of_the_best() -> None:
    assert best_block_size([1.0, 3.0, 2.0], [6, 7, 8]) == (7, False)
    assert best_block_size([1.0, 3.0, 3.0], [6, 7, 8]) == (7, True)
    assert best_block_size([3.0, 1.0, 3.0], [8, 7, 6]) == (6, True)  # sizes in any order
    assert best_block_size([2.0, 2.0, 3.0], [6, 7, 8]) == (8, False)  # a tie below the best
    assert best_block_size([1.5], [4]) == (4, False)


def test_best_block_size_needs_one_objective_per_size() -> None:
    with pytest.raises(ValueError, match="zip"):
        best_block_size([1.0, 2.0], [6, 7, 8])
    with pytest.raises(ValueError, match="empty"):
        best_block_size([], [])
