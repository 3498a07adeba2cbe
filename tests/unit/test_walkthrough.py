"""The walkthrough of a request: rounds, roles and token texts, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from blockpilot.acceptance import UNKNOWN, AcceptanceTable
from blockpilot.errors import BlockPilotError
from blockpilot.walkthrough import Role, Round, Walkthrough, split_rounds, token_texts

DRAFT, BONUS, LAST = Role.DRAFT, Role.BONUS, Role.LAST


def facts(rounds: Sequence[Round]) -> list[tuple]:
    names = ("anchor", "drafted", "accepted", "rejected", "bonus", "num_committed")
    return [tuple(getattr(one, name) for name in names) for one in rounds]


def acceptance_of(cells: dict[tuple[int, int], int], num_tokens: int, limit: int):
    """Return a table that knows these (block size, anchor) only."""
    table = AcceptanceTable.empty([4], num_tokens, limit)
    for (size, anchor), accepted in cells.items():
        table.accepted[size - 2, anchor] = accepted
    return table


def test_rounds_by_hand() -> None:
    """Eight tokens: the first from prefill, then rounds of 4, 1 and 2, far from the limit."""
    rounds = split_rounds([4, 1, 2], 4, num_tokens=8, limit_tokens=100)
    assert [one.index for one in rounds] == [1, 2, 3]
    assert facts(rounds) == [
        (0, 3, 3, 0, 1, 4),  # all drafts, and the bonus
        (4, 3, 0, 3, 1, 1),  # the bonus alone
        (5, 3, None, None, None, 2),  # the text ends at its stop token: draft or bonus
    ]
    assert [one.roles for one in rounds] == [[DRAFT, DRAFT, DRAFT, BONUS], [BONUS], [DRAFT, LAST]]


@pytest.mark.parametrize(
    ("agreeing", "expected", "roles"),
    [
        (1, (5, 3, 1, 2, 1, 2), [DRAFT, BONUS]),  # the stop token is the target's own
        (2, (5, 3, 2, 1, 0, 2), [DRAFT, DRAFT]),  # the stop token was drafted
        (3, (5, 3, 2, 1, 0, 2), [DRAFT, DRAFT]),  # and so was something behind it
        (0, (5, 3, None, None, None, 2), [DRAFT, LAST]),  # not these rounds
        (UNKNOWN, (5, 3, None, None, None, 2), [DRAFT, LAST]),
    ],
)
def test_the_acceptance_table_tells_how_a_text_stopped(agreeing, expected, roles) -> None:
    table = acceptance_of({(4, 5): agreeing}, num_tokens=8, limit=100)
    last = split_rounds([4, 1, 2], 4, 8, 100, table)[-1]
    assert facts([last]) == [expected]
    assert last.roles == roles


@pytest.mark.parametrize(("agreeing", "accepted", "bonus"), [(0, 0, 1), (1, 1, 0)])
def test_blocks_shorten_at_the_limit(agreeing, accepted, bonus) -> None:
    """One token is left after the first round: a block of 2, whose draft leaves no bonus."""
    table = acceptance_of({(2, 4): agreeing}, num_tokens=6, limit=6)
    rounds = split_rounds([4, 1], 4, num_tokens=6, limit_tokens=6, acceptance=table)
    assert facts(rounds)[1] == (4, 1, accepted, 1 - accepted, bonus, 1)


def test_a_whole_block_ends_in_a_bonus_token_even_at_the_end() -> None:
    assert facts(split_rounds([4], 4, 5, 100)) == [(0, 3, 3, 0, 1, 4)]


def test_block_size_one_drafts_nothing() -> None:
    rounds = split_rounds([1, 1], 1, num_tokens=3, limit_tokens=3)
    assert facts(rounds) == [(0, 0, 0, 0, 1, 1), (1, 0, 0, 0, 1, 1)]


def test_a_text_of_the_first_token_alone_has_no_round() -> None:
    assert split_rounds([], 4, num_tokens=1, limit_tokens=100) == []


def test_rounds_of_another_text_are_refused() -> None:
    with pytest.raises(BlockPilotError, match="is 8; allowed: 9, the length of the text"):
        split_rounds([4, 1, 2], 4, num_tokens=9, limit_tokens=100)


def from_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def test_a_character_belongs_to_its_last_token() -> None:
    assert token_texts([*"aé€".encode()], from_bytes) == ["a", "", "é", "", "", "€"]


def test_half_a_character_at_the_end_is_shown_as_decoded() -> None:
    assert token_texts([97, 0xC3], from_bytes) == ["a", "\ufffd"]
    assert token_texts([0xC3, 97], from_bytes) == ["", "\ufffda"]
    assert token_texts([], from_bytes) == []


def test_spaces_stay_where_a_decoder_strips_the_start_of_a_text() -> None:
    def strip_start(ids: Sequence[int]) -> str:
        return "".join([" one", " two"][index] for index in ids).lstrip()

    assert token_texts([0, 1], strip_start) == ["one", " two"]


@pytest.fixture
def walk() -> Walkthrough:
    return Walkthrough(
        prompt_id="0f",
        seed=0,
        prompt="?",
        tokens=list("abcdefgh"),
        limit_tokens=100,
        num_committed={2: [2, 1, 2, 2], 4: [4, 1, 2]},
    )


def test_the_table_of_rounds(walk) -> None:
    table = walk.table(4)
    assert table.index.tolist() == [1, 2, 3] and table.index.name == "round"
    assert table["text"].tolist() == ["bcde", "f", "gh"]
    assert table["anchor"].tolist() == [0, 4, 5]
    assert table["bonus"].tolist() == [1, 1, pd.NA]
    assert table["num_committed"].sum() == len(walk.tokens) - 1


def test_tau_by_block_size(walk) -> None:
    assert walk.block_sizes == [2, 4]
    assert walk.tau_by_block_size == {2: pytest.approx(7 / 4), 4: pytest.approx(7 / 3)}


def test_only_swept_sizes_can_be_walked(walk) -> None:
    with pytest.raises(BlockPilotError, match="block size is 3; allowed: 2, 4"):
        walk.rounds(3)


def test_the_table_of_a_text_without_rounds() -> None:
    walk = Walkthrough(
        prompt_id="0f", seed=0, prompt="?", tokens=["a"], limit_tokens=9, num_committed={4: []}
    )
    assert walk.table(4).empty and np.isnan(walk.tau_by_block_size[4])
