"""The clairvoyant bound against all sequences of choices, and the oracle of fixed sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from blockpilot.acceptance import UNKNOWN, AcceptanceTable, walk
from blockpilot.bounds import all_choices, best_fixed_choice, clairvoyant, walk_cost
from blockpilot.errors import BlockPilotError


def table_of(rows: list[list[int]], limit_tokens: int = 100) -> AcceptanceTable:
    accepted = np.array(rows, dtype=np.int8)
    sizes = tuple(range(2, len(rows) + 2))
    return AcceptanceTable(block_sizes=sizes, accepted=accepted, limit_tokens=limit_tokens)


def random_table(generator: np.random.Generator, anchors: int, largest: int) -> AcceptanceTable:
    """Return a table whose text stops at the limit or up to 3 tokens before it."""
    left = anchors - np.arange(anchors)
    rows = [generator.integers(0, np.minimum(b - 1, left) + 1) for b in range(2, largest + 1)]
    return table_of(rows, limit_tokens=anchors + 1 + int(generator.integers(0, 4)))


def random_tables(count: int, anchors: int, largest: int, seed: int) -> Iterator[AcceptanceTable]:
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield random_table(generator, int(generator.integers(1, anchors + 1)), largest)


def random_costs(table: AcceptanceTable, generator: np.random.Generator, whole: bool):
    """Return a round cost that depends on the shortened sizes and on the anchor."""
    largest = max(table.block_sizes) + 1
    shape = (largest, largest, table.num_anchors)
    costs = generator.integers(1, 9, shape) if whole else generator.random(shape) + 0.1
    return lambda draft, verify, anchor: float(costs[draft, verify, anchor])


def one_round(draft: int, verify: int, anchor: int) -> float:
    return 1.0


def one_step(table, choice, anchor, round_cost) -> tuple[int, float]:
    """Return (committed, cost) of a round, without the code under test."""
    draft, verify = (min(size, table.limit_tokens - anchor) for size in choice)
    accepted = 0 if draft == 1 else int(table.accepted[draft - 2, anchor])
    committed = min(accepted + 1, verify, table.accepted.shape[1] - anchor)
    return committed, round_cost(draft, verify, anchor)


def every_sequence(table, choices, round_cost, anchor=0) -> Iterator[tuple]:
    """Yield (cost, rounds, choices) of every sequence of choices from `anchor` on."""
    if anchor == table.accepted.shape[1]:
        yield 0.0, 0, ()
        return
    for choice in choices:
        committed, cost = one_step(table, choice, anchor, round_cost)
        for later, rounds, rest in every_sequence(table, choices, round_cost, anchor + committed):
            yield cost + later, rounds + 1, (choice, *rest)


def assert_replays(table: AcceptanceTable, bound, round_cost) -> None:
    """Walk the bound's own choices again."""
    anchor, costs = 0, []
    for choice, expected in zip(bound.choices, bound.num_committed, strict=True):
        committed, cost = one_step(table, choice, anchor, round_cost)
        assert committed == expected == table.num_committed(*choice, anchor)
        costs.append(cost)
        anchor += committed
    assert anchor == sum(bound.num_committed) == table.num_anchors
    assert bound.num_rounds == len(bound.choices)
    assert bound.cost == pytest.approx(sum(costs), rel=1e-12)


@pytest.mark.parametrize("verify_shorter", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (2, 4), (3,), (1, 4)])
def test_fewest_rounds_of_all_sequences(sizes, verify_shorter) -> None:
    choices = all_choices(sizes, verify_shorter)
    anchors = 4 if len(choices) > 5 else 6
    for table in random_tables(25, anchors, largest=4, seed=1):
        bound = clairvoyant(table, choices)
        # A minimum of tuples: fewest rounds, then the smallest sizes from the first round on.
        cost, rounds, planned = min(every_sequence(table, choices, one_round))
        assert (bound.cost, bound.num_rounds, tuple(bound.choices)) == (cost, rounds, planned)
        assert_replays(table, bound, one_round)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("verify_shorter", [False, True])
def test_least_cost_of_all_sequences(verify_shorter, whole) -> None:
    generator = np.random.default_rng(2)
    choices = all_choices((1, 2, 4), verify_shorter)
    for table in random_tables(40, 5, largest=4, seed=3):
        round_cost = random_costs(table, generator, whole)
        bound = clairvoyant(table, choices, round_cost)
        cost, rounds, planned = min(every_sequence(table, choices, round_cost))
        assert bound.cost == cost
        assert (bound.num_rounds, tuple(bound.choices)) == (rounds, planned)
        assert_replays(table, bound, round_cost)


def test_clairvoyant_oracle_and_fixed_sizes_are_ordered() -> None:
    sizes, strict = range(1, 9), {"oracle": 0, "verify": 0}
    for table in random_tables(60, 60, largest=8, seed=4):
        bound = clairvoyant(table, all_choices(sizes))
        shorter = clairvoyant(table, all_choices(sizes, verify_shorter=True))
        size, rounds = best_fixed_choice(table, sizes)
        fixed = [len(walk(table, b)) for b in sizes]
        assert shorter.num_rounds <= bound.num_rounds <= rounds == min(fixed)
        assert size == 1 + fixed.index(rounds)
        strict["oracle"] += bound.num_rounds < rounds
        strict["verify"] += shorter.num_rounds < bound.num_rounds
    assert strict["oracle"] > 30  # the order is not one of equals
    assert strict["verify"] > 0


def test_no_fixed_choice_is_cheaper_to_the_last_bit() -> None:
    generator = np.random.default_rng(5)
    choices = all_choices(range(1, 7), verify_shorter=True)
    for table in random_tables(40, 50, largest=6, seed=6):
        round_cost = random_costs(table, generator, whole=False)
        bound = clairvoyant(table, choices, round_cost)
        assert all(bound.cost <= walk_cost(table, *choice, round_cost) for choice in choices)
        assert_replays(table, bound, round_cost)
        for choice in choices[::5]:
            alone = clairvoyant(table, [choice], round_cost)
            assert alone.cost == walk_cost(table, *choice, round_cost)
            assert alone.num_committed == walk(table, *choice)


def test_a_bound_by_hand() -> None:
    # Size 3 wins at anchor 0 and size 2 at anchor 3; neither alone gets through in 2 rounds.
    table = table_of([[0, 0, 0, 1, 0], [2, 0, 0, 0, 0]])
    bound = clairvoyant(table, all_choices([2, 3]))
    assert bound.choices == [(3, 3), (2, 2)]
    assert bound.num_committed == [3, 2]
    assert (bound.num_rounds, bound.cost) == (2, 2.0)
    assert best_fixed_choice(table, [2, 3]) == (3, 3)


def test_committing_less_now_may_pay_later() -> None:
    # Size 3 commits 2 and lands where every draft fails; size 2 commits 1 and then 3 are accepted.
    table = table_of([[0, 0, 0, 0], [1, 2, 0, 0]])
    assert walk(table, 3) == [2, 1, 1]
    assert clairvoyant(table, all_choices([2, 3])).num_committed == [1, 3]


def test_a_longer_draft_may_be_cut_where_it_goes_wrong() -> None:
    # Landing on anchor 2 costs two more rounds, on anchor 1 one; only size 3 drafts.
    table = table_of([[0, 0, 0, 0], [1, 2, 0, 0]])
    assert clairvoyant(table, [(3, 3)]).num_rounds == 3
    bound = clairvoyant(table, all_choices([1, 3], verify_shorter=True)[1:])
    assert bound.choices == [(3, 1), (3, 3)]


def test_dear_blocks_make_more_rounds_cheaper() -> None:
    table = table_of([[1] * 4, [2] * 4, [3] * 4])
    choices = all_choices([1, 2, 3, 4])
    assert clairvoyant(table, choices).choices == [(4, 4)]
    bound = clairvoyant(
        table, choices, lambda draft, verify, anchor: {2: 2.0, 4: 5.0}.get(draft, 9)
    )
    assert bound.choices == [(2, 2), (2, 2)]
    assert bound.cost == 4.0


def test_equal_costs_take_the_fewest_rounds() -> None:
    table = table_of([[1] * 4, [2] * 4, [3] * 4])
    bound = clairvoyant(table, all_choices([1, 2, 4]), lambda draft, verify, anchor: verify)
    assert bound.choices == [(4, 4)]
    assert bound.cost == 4.0


def test_equal_rounds_take_the_smallest_sizes() -> None:
    table = table_of([[1, 1], [2, 1], [3, 1]])
    assert clairvoyant(table, [(4, 4), (3, 3), (2, 2)]).choices == [(2, 2)]
    assert clairvoyant(table, [(4, 4), (4, 2), (4, 3), (3, 3)]).choices == [(3, 3)]
    assert clairvoyant(table, [(4, 4), (4, 2), (4, 3)]).choices == [(4, 2)]
    assert best_fixed_choice(table, [4, 3, 2]) == (2, 1)


def test_costs_are_asked_for_the_sizes_that_a_block_really_has() -> None:
    table, asked = table_of([[0] * 3, [0] * 3, [0] * 3], limit_tokens=4), set()

    def round_cost(draft: int, verify: int, anchor: int) -> float:
        asked.add((draft, verify, anchor))
        return 1.0

    clairvoyant(table, [(4, 4), (4, 2)], round_cost)
    expected = {(4, 4, 0), (4, 2, 0), (3, 3, 1), (3, 2, 1), (2, 2, 2)}
    assert asked == expected
    asked.clear()
    walk_cost(table, 4, 2, round_cost)
    assert asked == {(4, 2, 0), (3, 2, 1), (2, 2, 2)}


def test_the_cost_of_a_fixed_choice() -> None:
    table = table_of([[1, 0, 1, 1, 0], [0, 0, 2, 1, 1]])
    assert walk(table, 3, 2) == [1, 1, 2, 1]
    assert walk_cost(table, 3, 2, lambda draft, verify, anchor: anchor + draft / verify) == 13.0
    assert walk_cost(table, 3, 2, None) == 4.0


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_a_text_without_anchors_has_no_rounds(num_tokens) -> None:
    table = AcceptanceTable.empty([4], num_tokens, limit_tokens=16)
    bound = clairvoyant(table, all_choices([2, 4, 9]))
    assert (bound.num_rounds, bound.cost, bound.choices, bound.num_committed) == (0, 0.0, [], [])
    assert walk_cost(table, 4, 4, one_round) == 0.0
    assert best_fixed_choice(table, [4, 3]) == (3, 0)


def test_plain_numbers_come_back() -> None:
    bound = clairvoyant(table_of([[1, 1, 0, 0]]), all_choices(np.array([1, 2])))
    numbers = [bound.num_rounds, *bound.num_committed, *bound.choices[0]]
    assert {type(number) for number in numbers} == {int}
    assert type(bound.cost) is float


def test_all_choices() -> None:
    assert all_choices([4, 2, 3]) == [(2, 2), (3, 3), (4, 4)]
    shorter = [(2, 2), (3, 2), (3, 3), (5, 2), (5, 3), (5, 5)]
    assert all_choices([2, 3, 5], verify_shorter=True) == shorter
    assert all_choices([1, 2], verify_shorter=True) == [(1, 1), (2, 1), (2, 2)]


def test_no_choices_are_refused() -> None:
    table = table_of([[0, 0]])
    with pytest.raises(BlockPilotError, match=r"choices is \[\]; allowed: at least one \(draft"):
        clairvoyant(table, [])
    with pytest.raises(BlockPilotError, match=r"choices is \[\]; allowed: at least one"):
        best_fixed_choice(table, [])


@pytest.mark.parametrize("choice", [(2, 3), (2, 0), (0, 0), (-1, -1)])
def test_impossible_choices_are_refused(choice) -> None:
    table = table_of([[0, 0], [0, 0]])
    for call in (
        lambda: clairvoyant(table, [(2, 2), choice]),
        lambda: walk_cost(table, *choice, None),
    ):
        with pytest.raises(BlockPilotError, match=r"a choice is \(.*1 <= verify_size <= draft"):
            call()


def test_sizes_beyond_the_table_are_refused_unless_they_shorten() -> None:
    rows = [[1, 1, 1], [2, 2, 1], [3, 2, 1]]
    with pytest.raises(BlockPilotError, match=r"\(5, 5\); allowed: draft sizes up to 4.*Replay"):
        clairvoyant(table_of(rows, limit_tokens=5), [(5, 5)])
    with pytest.raises(BlockPilotError, match=r"\(9, 9\); allowed: draft sizes up to 4"):
        best_fixed_choice(table_of(rows), [2, 9])
    assert clairvoyant(table_of(rows, limit_tokens=4), [(9, 9)]).num_committed == [3]


def test_only_blocks_that_a_round_can_come_to_must_be_known() -> None:
    table = table_of([[1, UNKNOWN, 1, UNKNOWN]])
    assert clairvoyant(table, [(2, 2)]).num_committed == [2, 2]
    with pytest.raises(BlockPilotError, match="no block of size 2 at anchor 1"):
        clairvoyant(table, [(1, 1), (2, 2)])
