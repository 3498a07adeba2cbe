"""Replay gives the rounds that decoding takes, number by number, from the text alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from blockpilot import replay
from blockpilot.acceptance import UNKNOWN, AcceptanceTable, walk
from blockpilot.decode import Generation, generate
from blockpilot.errors import BlockPilotError
from blockpilot.policies import ArPolicy, FixedPolicy
from blockpilot.replay import Committed, Replay
from blockpilot.sampling import GREEDY, Sampling

BLOCK_SIZES = range(1, 9)  # 1..2B
SAMPLINGS = {
    "greedy": GREEDY,
    "match": Sampling(temperature=1.0),
    "match, T=0.7": Sampling(temperature=0.7),
    "coupled": Sampling(temperature=1.0, scheme="coupled"),
    "coupled, T=0.7": Sampling(temperature=0.7, scheme="coupled"),
    "coupled, truncated": Sampling(temperature=1.0, scheme="coupled", top_k=5, top_p=0.9),
    "coupled, hot draft": Sampling(temperature=0.7, scheme="coupled", draft_temperature=1.5),
}
# (prompt, max_new_tokens, whether it stops inside a block that was accepted further)
REQUESTS = [
    (0, 26, False),
    (4, 26, True),
    (1, 1, False),
    (6, 26, True),
    (9, 20, False),
    (2, 2, False),
    (9, 24, True),
    (3, 5, False),
]


@dataclass(kw_only=True)
class Decoded:
    """Requests decoded live: their texts by `ar`, their rounds at every block size."""

    sampling: Sampling
    texts: list[Committed]
    live: list[dict[int, Generation]]


def stop_in_a_block(prompt: list[int], pair, settings: dict) -> set[int]:
    """Return a token that first occurs as an accepted draft, as late as possible."""
    late = 0
    for size in (4, 6, 8):
        found = generate(*pair, prompt, FixedPolicy(size), **settings)
        anchors = np.cumsum([0, *found.num_committed])
        for anchor, accepted in zip(anchors, found.num_accepted, strict=False):
            if accepted and found.output_ids[anchor + 1] not in found.output_ids[: anchor + 1]:
                late = max(late, int(anchor) + 1)
    return {found.output_ids[late]}


@pytest.fixture(scope="module")
def decoded(pair64, prompts) -> Callable[[str], Decoded]:
    """Return a function from a name of SAMPLINGS to the requests decoded so."""

    @cache
    def decode(name: str) -> Decoded:
        case = Decoded(sampling=SAMPLINGS[name], texts=[], live=[])
        for index, (prompt, limit, stops) in enumerate(REQUESTS):
            ids, seed = prompts[prompt], 10 + index
            settings = {"max_new_tokens": limit, "sampling": case.sampling, "seed": seed}
            settings["stop_ids"] = stop_in_a_block(ids, pair64, settings) if stops else set()
            output = generate(pair64.target, None, ids, ArPolicy(), **settings).output_ids
            sizes = {b: generate(*pair64, ids, FixedPolicy(b), **settings) for b in BLOCK_SIZES}
            case.texts.append(
                Committed(prompt_ids=ids, output_ids=output, seed=seed, limit_tokens=limit)
            )
            case.live.append(sizes)
        return case

    return decode


def own_choices(sizes=BLOCK_SIZES) -> list[tuple[int, int]]:
    return [(size, size) for size in sizes]


def rounds(tables: list[AcceptanceTable]) -> list[list[list[int]]]:
    return [[walk(table, size) for size in BLOCK_SIZES] for table in tables]


def live_rounds(case: Decoded) -> list[list[list[int]]]:
    return [[sizes[size].num_committed for size in BLOCK_SIZES] for sizes in case.live]


def assert_same(one: list[AcceptanceTable], other: list[AcceptanceTable]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.limit_tokens == right.limit_tokens
        assert np.array_equal(left.accepted, right.accepted)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_replayed_rounds_are_the_live_ones(name, decoded, pair64) -> None:
    case = decoded(name)
    tables = Replay(*pair64, case.sampling).full(case.texts, BLOCK_SIZES)
    assert rounds(tables) == live_rounds(case)
    for text, table, sizes in zip(case.texts, tables, case.live, strict=True):
        for generation in sizes.values():
            assert generation.output_ids == list(text.output_ids)
            anchor = 0
            for size, accepted, count in zip(
                generation.block_sizes,
                generation.num_accepted,
                generation.num_committed,
                strict=True,
            ):
                # Behind the end of the text nothing was decoded to agree with.
                left = len(text.output_ids) - 1 - anchor
                assert table.num_accepted(size, anchor) == min(accepted, left)
                anchor += count
        sizes, anchors = np.array(table.block_sizes)[:, None], np.arange(table.num_anchors)
        assert np.array_equal(table.accepted != UNKNOWN, sizes <= text.limit_tokens - anchors)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_texts_to_replay_end_in_every_way(name, decoded) -> None:
    case = decoded(name)
    assert {len(text.output_ids) for text in case.texts} >= {1, 2, 5, 20, 26}
    clipped = 0
    for sizes in case.live:
        for found in sizes.values():
            beyond = found.num_accepted and found.num_accepted[-1] + 1 > found.num_committed[-1]
            clipped += bool(found.stop_reason == "stop" and beyond)
    assert clipped >= 2
    assert len({n for sizes in case.live for n in sizes[6].num_accepted}) >= 3


@pytest.mark.parametrize("name", SAMPLINGS)
def test_walks_know_the_visited_anchors_and_nothing_else(name, decoded, pair64) -> None:
    case = decoded(name)
    machine = Replay(*pair64, case.sampling)
    full, walks = machine.full(case.texts, BLOCK_SIZES), machine.walks(case.texts, own_choices())
    assert rounds(walks) == live_rounds(case)
    for whole, found, sizes in zip(full, walks, case.live, strict=True):
        visited = np.zeros_like(found.accepted, dtype=bool)
        for generation in sizes.values():
            anchors = np.cumsum([0, *generation.num_committed])[:-1]
            for size, anchor in zip(generation.block_sizes, anchors, strict=True):
                if size > 1:
                    visited[size - 2, anchor] = True
        assert np.array_equal(found.accepted != UNKNOWN, visited)
        assert np.array_equal(found.accepted[visited], whole.accepted[visited])


@pytest.mark.parametrize("name", ["greedy", "coupled"])
def test_memory_does_not_change_the_tables(name, decoded, pair64, monkeypatch) -> None:
    case = decoded(name)
    calls = []
    count_accepted = replay._Pack.count_accepted
    monkeypatch.setattr(
        replay._Pack,
        "count_accepted",
        lambda pack, cells: calls.append(len(cells)) or count_accepted(pack, cells),
    )

    def run(memory_bytes: int) -> tuple[list, list, int]:
        machine = Replay(*pair64, case.sampling, memory_mb=1)
        machine.memory_bytes = memory_bytes
        calls.clear()
        found = machine.full(case.texts, BLOCK_SIZES), machine.walks(case.texts, own_choices())
        return *found, len(calls)

    full, walks, few = run(2**30)
    for memory_bytes in (2**20, 300_000, 1):
        other_full, other_walks, count = run(memory_bytes)
        assert_same(other_full, full)
        assert_same(other_walks, walks)
    assert count > 5 * few  # the least memory cuts packs, head passes and windows


def test_the_least_memory_cuts_everything_and_much_memory_nothing(decoded, pair64) -> None:
    case = decoded("coupled")
    machine = Replay(*pair64, case.sampling, memory_mb=4096)
    lengths = [len(t.prompt_ids) + len(t.output_ids) - 1 for t in case.texts]
    with torch.inference_mode():
        pack = replay._Pack(machine, case.texts, 8)
        assert pack.window == max(lengths)
        assert pack.rows_per_pass > 10_000
        machine.memory_bytes = 1
        pack = replay._Pack(machine, case.texts, 8)
    assert (pack.window, pack.rows_per_pass, pack.rows_per_head) == (replay.LEAST_WINDOW, 8, 1)
    pack.rows_per_pass = 10
    cells = [(0, size, anchor) for anchor, size in enumerate((4, 6, 1, 8, 3, 3, 3, 3, 12, 2))]
    parts = [[size for _, size, _ in part] for part in pack.split(cells)]
    assert parts == [[4, 6], [1, 8], [3, 3, 3], [3], [12], [2]]
    batches = list(replay._batches(lengths, 64))
    assert len(batches) > 2
    assert [index for batch in batches for index in batch] == list(range(len(lengths)))


@pytest.mark.parametrize("name", ["match", "coupled"])
def test_texts_that_share_a_call_do_not_change_each_other(name, decoded, pair64) -> None:
    case = decoded(name)
    machine = Replay(*pair64, case.sampling)
    together = machine.full(case.texts, BLOCK_SIZES)
    assert_same([machine.full([text], BLOCK_SIZES)[0] for text in case.texts], together)
    assert_same(machine.full(case.texts[::-1], BLOCK_SIZES)[::-1], together)
    walks = machine.walks(case.texts, own_choices())
    assert_same([machine.walks([text], own_choices())[0] for text in case.texts], walks)
    twice = machine.full([*case.texts[:2], *case.texts[:2]], BLOCK_SIZES)
    assert_same(twice, [*together[:2], *together[:2]])


def test_some_sizes_alone_give_the_same_numbers(decoded, pair64) -> None:
    case = decoded("match")
    machine = Replay(*pair64, case.sampling)
    whole, some = machine.full(case.texts, BLOCK_SIZES), machine.full(case.texts, [6, 3])
    for table, part in zip(whole, some, strict=True):
        assert part.block_sizes == (2, 3, 4, 5, 6)
        known = part.accepted != UNKNOWN
        assert np.array_equal(part.accepted[known], table.accepted[:5][known])
        for size in (3, 6):
            assert walk(part, size) == walk(table, size)
    far_from_the_limit = some[0].accepted[:, 0]
    assert (far_from_the_limit != UNKNOWN).tolist() == [False, True, False, False, True]


@pytest.mark.parametrize("name", ["greedy", "match", "coupled"])
@pytest.mark.parametrize("mistake", ["features", "positions", "embeddings"])
def test_another_draft_pass_would_be_noticed(
    mistake, name, decoded, pair64, make_target, monkeypatch
) -> None:
    case, (target, draft) = decoded(name), pair64
    if mistake == "features":  # a layer too late
        target = make_target(torch.float64, feature_layer_ids=(1, 2, 3))
    elif mistake == "positions":
        rope = draft.rope
        monkeypatch.setattr(draft, "rope", lambda positions: rope(positions * 2))
    else:
        other = replace(draft.config, mask_token_id=draft.config.mask_token_id - 1)
        monkeypatch.setattr(draft, "config", other)
    found = Replay(target, draft, case.sampling).full(case.texts, BLOCK_SIZES)
    assert rounds(found) != live_rounds(case)


def test_the_seed_matters_to_coupled_drafts_alone(decoded, pair64) -> None:
    for name, matters in (("coupled", True), ("match", False), ("greedy", False)):
        case = decoded(name)
        machine = Replay(*pair64, case.sampling)
        others = [replace(text, seed=text.seed + 1) for text in case.texts]
        expected = rounds(machine.full(case.texts, BLOCK_SIZES))
        assert (rounds(machine.full(others, BLOCK_SIZES)) != expected) == matters


def test_rejection_is_refused_except_where_it_is_greedy(decoded, pair64) -> None:
    sampling = Sampling(temperature=0.5, scheme="rejection")
    with pytest.raises(BlockPilotError, match="sampling of a replay is 'rejection'; allowed: ma"):
        Replay(*pair64, sampling)
    case = decoded("greedy")
    found = Replay(*pair64, replace(sampling, temperature=0.0)).full(case.texts, BLOCK_SIZES)
    assert rounds(found) == live_rounds(case)


def test_nothing_to_draft(decoded, pair64) -> None:
    texts = decoded("match").texts
    machine = Replay(*pair64, SAMPLINGS["match"])
    assert machine.full([], [4]) == machine.walks([], [(4, 4)]) == []
    for tables in (machine.full(texts, [1]), machine.walks(texts, [(1, 1)])):
        for text, table in zip(texts, tables, strict=True):
            assert walk(table, 1) == [1] * (len(text.output_ids) - 1)
    single = [text for text in texts if len(text.output_ids) == 1]
    assert walk(machine.full(single, [4])[0], 4) == []
