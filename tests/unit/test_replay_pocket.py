"""Replay equals live decoding on the shipped pair, in float64, and bounds keep their order."""

from __future__ import annotations

import pytest
from pocket_cases import draw_prompts, load_pocket

from blockpilot.acceptance import AcceptanceTable, walk
from blockpilot.bounds import all_choices, best_fixed_choice, clairvoyant
from blockpilot.decode import generate
from blockpilot.policies import FixedPolicy
from blockpilot.replay import Committed, Replay
from blockpilot.sampling import GREEDY, Sampling
from blockpilot.trajectories import decode_batch

NOISE_SEED = 3
SAMPLINGS = {
    "greedy match": GREEDY,
    "greedy coupled": Sampling(scheme="coupled"),
    "match": Sampling(temperature=1.0),
    "coupled": Sampling(temperature=1.0, scheme="coupled"),
}


SIZES = range(1, 17)  # 1..2B
SMALL, FULL = (1, 32), (4, 96)  # (prompts per domain, new tokens)
CASES = [
    *(
        pytest.param(SMALL, name, id=f"small-{name}")
        for name in SAMPLINGS
        if "greedy c" not in name
    ),
    *(pytest.param(FULL, name, id=f"full-{name}", marks=pytest.mark.full) for name in SAMPLINGS),
]


@pytest.fixture(scope="module")
def pair():
    return load_pocket()


def decode_texts(pair, prompts, sampling: Sampling, new_tokens: int) -> list[Committed]:
    rows = decode_batch(
        pair.target,
        prompts,
        max_new_tokens=new_tokens,
        stop_ids=pair.stop_ids,
        sampling=sampling,
        seed=NOISE_SEED,
    )
    return [
        Committed(
            prompt_ids=prompt, output_ids=row.output_ids, seed=NOISE_SEED, limit_tokens=new_tokens
        )
        for prompt, row in zip(prompts, rows, strict=True)
    ]


def assert_rounds_are_live(pair, sampling, text: Committed, tables) -> list[int]:
    """Return the drafts accepted live at every size, all rounds in one list."""
    every = []
    for size in SIZES:
        live = generate(
            pair.target,
            pair.draft,
            text.prompt_ids,
            FixedPolicy(size),
            max_new_tokens=text.limit_tokens,
            stop_ids=pair.stop_ids,
            sampling=sampling,
            seed=text.seed,
        )
        assert live.output_ids == text.output_ids
        for table in tables:
            assert walk(table, size) == live.num_committed, size
        anchor = 0
        for b, accepted, count in zip(
            live.block_sizes, live.num_accepted, live.num_committed, strict=True
        ):
            left = len(text.output_ids) - 1 - anchor  # nothing is known behind the end of the text
            assert tables[0].num_accepted(b, anchor) == min(accepted, left)
            anchor += count
        every += live.num_accepted
    return every


def assert_bounds_keep_their_order(tables: list[AcceptanceTable]) -> None:
    """Compare the clairvoyant bound, the oracle and the best fixed size on every text."""
    best = min(SIZES, key=lambda size: sum(len(walk(table, size)) for table in tables))
    bounds, fixed = [], [len(walk(table, best)) for table in tables]
    for table, fixed_rounds in zip(tables, fixed, strict=True):
        oracle, oracle_rounds = best_fixed_choice(table, SIZES)
        assert oracle_rounds == len(walk(table, oracle))
        bound = clairvoyant(table, all_choices(SIZES))
        shorter = clairvoyant(table, all_choices(SIZES, verify_shorter=True))
        assert sum(bound.num_committed) == table.num_anchors
        assert shorter.num_rounds <= bound.num_rounds <= oracle_rounds <= fixed_rounds
        bounds.append(bound.num_rounds)
    assert sum(bounds) < sum(fixed) < sum(table.num_anchors for table in tables)  # of `ar`


@pytest.mark.parametrize(("grid", "name"), CASES)
def test_replayed_rounds_are_live_and_bounds_keep_their_order(pair, grid, name) -> None:
    sampling = SAMPLINGS[name]
    count, new_tokens = grid
    texts = decode_texts(pair, draw_prompts(count), sampling, new_tokens)
    machine = Replay(pair.target, pair.draft, sampling)
    full = machine.full(texts, SIZES)
    walks = machine.walks(texts, [(size, size) for size in SIZES])
    accepted = []
    for text, *tables in zip(texts, full, walks, strict=True):
        accepted += assert_rounds_are_live(pair, sampling, text, tables)
    # With a draft that is never accepted, all of the above would hold trivially.
    assert max(accepted) >= 6
    assert sum(accepted) > len(accepted)
    assert_bounds_keep_their_order(full)
