"""The acceptance table: walking it gives the rounds that the decode loop would have had."""

from __future__ import annotations

import numpy as np
import pytest

from blockpilot.acceptance import UNKNOWN, AcceptanceTable, walk
from blockpilot.errors import BlockPilotError
from blockpilot.rounds import commit, count_accepted, last_block_size

STOP = -7
LARGEST = 6


def table_of(rows: list[list[int]], limit_tokens: int) -> AcceptanceTable:
    accepted = np.array(rows, dtype=np.int8)
    sizes = tuple(range(2, len(rows) + 2))
    return AcceptanceTable(block_sizes=sizes, accepted=accepted, limit_tokens=limit_tokens)


def random_table(generator: np.random.Generator) -> AcceptanceTable:
    """Return a table whose text stops early or at the limit, up to 12 anchors."""
    anchors = int(generator.integers(1, 13))
    rows = [generator.integers(0, size, anchors).tolist() for size in range(2, LARGEST + 1)]
    return table_of(rows, limit_tokens=anchors + 1 + int(generator.integers(0, 5)))


def decoded_rounds(table: AcceptanceTable, draft_size: int, verify_size: int) -> list[int]:
    """Play the decode loop with token ids: drafts agree with the text as the table says."""
    ends_in_stop = table.limit_tokens > table.num_anchors + 1
    text = [*range(table.num_anchors), STOP if ends_in_stop else table.num_anchors]
    going_on = [*text, *range(1000, 1000 + LARGEST)]
    output, rounds = text[:1], []
    while len(output) < table.limit_tokens and output[-1] != STOP:
        anchor, remaining = len(output) - 1, table.limit_tokens - len(output)
        drafted = last_block_size(draft_size, remaining)
        verified = last_block_size(verify_size, remaining)
        agreeing = 0 if drafted == 1 else table.accepted[drafted - 2, anchor]
        follows = going_on[anchor + 1 : anchor + 1 + drafted]
        proposals = [*follows[:agreeing], *[-1] * (drafted - 1 - agreeing)][: verified - 1]
        accepted = count_accepted(proposals, follows[:verified])
        committed, _ = commit(follows[:verified], accepted, {STOP}, remaining)
        output += committed
        rounds.append(len(committed))
    assert output == text
    return rounds


def test_a_walk_has_the_rounds_of_the_decode_loop() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        table = random_table(generator)
        for draft in range(1, LARGEST + 1):
            assert walk(table, draft) == decoded_rounds(table, draft, draft)
            for verify in range(1, draft + 1):
                assert walk(table, draft, verify) == decoded_rounds(table, draft, verify)


def test_a_walk_by_hand() -> None:
    # Anchors 0..4; the text has 6 tokens and stops by itself.
    table = table_of([[1, 0, 1, 1, 0], [0, 0, 2, 1, 1]], limit_tokens=100)
    assert walk(table, 1) == [1, 1, 1, 1, 1]
    assert walk(table, 2) == [2, 2, 1]
    assert walk(table, 3) == [1, 1, 3]
    assert walk(table, 3, 2) == [1, 1, 2, 1]


def test_drafts_beyond_the_end_of_the_text_do_not_count() -> None:
    assert walk(table_of([[1, 1], [2, 2], [3, 3]], limit_tokens=100), 4) == [2]


def test_blocks_shorten_before_the_limit() -> None:
    table = table_of([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], limit_tokens=5)
    assert [table.shortened(4, anchor) for anchor in range(4)] == [4, 4, 3, 2]
    assert [table.shortened(1, anchor) for anchor in range(4)] == [1, 1, 1, 1]
    # At anchor 2 the block of size 4 becomes one of size 3, whose proposals differ.
    table.accepted[:, 2] = [0, 1, 0]
    assert table.num_committed(4, 4, 2) == 2
    assert table.num_committed(2, 2, 2) == 1


def test_a_shorter_verification_caps_the_drafts_and_keeps_the_proposals() -> None:
    table = table_of([[0] * 8, [2] * 8, [3] * 8], limit_tokens=100)
    assert [table.num_committed(4, verify, 0) for verify in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert table.num_committed(2, 2, 0) == 1


def test_size_1_needs_no_row() -> None:
    table = AcceptanceTable.empty([1], num_tokens=4, limit_tokens=4)
    assert table.block_sizes == ()
    assert table.num_accepted(1, 0) == 0
    assert walk(table, 1) == [1, 1, 1]


def test_an_empty_table_has_every_smaller_size_and_knows_nothing() -> None:
    table = AcceptanceTable.empty([3, 5], num_tokens=7, limit_tokens=9)
    assert table.block_sizes == (2, 3, 4, 5)
    assert table.accepted.shape == (4, 6)
    assert table.accepted.dtype == np.int8
    assert (table.accepted == UNKNOWN).all()
    assert table.num_anchors == 6
    assert table.limit_tokens == 9


def test_an_unknown_block_is_refused() -> None:
    table = table_of([[0, 0, 0, 0], [0, UNKNOWN, 0, 0]], limit_tokens=100)
    assert table.num_accepted(3, 1) == UNKNOWN
    with pytest.raises(BlockPilotError, match=r"no block of size 3 at anchor 1; .*end at 3\. Rep"):
        walk(table, 3)
    with pytest.raises(BlockPilotError, match="size 3 at anchor 1"):
        table.num_committed(3, 1, 1)  # the draft is unknown, whatever is verified
    assert walk(table, 2) == [1, 1, 1, 1]


def test_the_message_names_the_shortened_size() -> None:
    table = AcceptanceTable.empty([8], num_tokens=4, limit_tokens=4)
    with pytest.raises(BlockPilotError, match="no block of size 4 at anchor 0"):
        walk(table, 8)


def test_an_unknown_block_off_the_walk_does_no_harm() -> None:
    assert walk(table_of([[1, UNKNOWN, 1, UNKNOWN]], limit_tokens=100), 2) == [2, 2]


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_a_text_without_anchors_has_no_rounds(num_tokens) -> None:
    table = AcceptanceTable.empty([4], num_tokens, limit_tokens=16)
    assert table.num_anchors == 0
    assert walk(table, 4) == []


def test_a_size_beyond_the_table_or_below_one_is_refused() -> None:
    table = table_of([[0, 0, 0, 0]], limit_tokens=100)
    with pytest.raises(BlockPilotError, match=r"no block of size 8 at anchor 0; .*end at 2"):
        walk(table, 8)
    with pytest.raises(BlockPilotError, match="draft size is 0; allowed: an integer >= 1"):
        walk(table, 0)
    with pytest.raises(BlockPilotError, match="no block of size 4"):
        walk(AcceptanceTable.empty([], 9, 20), 4)


def test_a_table_survives_its_row() -> None:
    table = table_of([[0, 1, UNKNOWN], [UNKNOWN] * 3, [2, UNKNOWN, 1]], limit_tokens=50)
    row = table.to_row()
    assert row["block_sizes"] == [2, 4]
    again = AcceptanceTable.from_row(row["block_sizes"], row["accepted"], 50)
    assert again.block_sizes == (2, 3, 4)
    assert (again.accepted == table.accepted).all()
    assert again.limit_tokens == 50
