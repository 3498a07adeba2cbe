"""Bounds over the best fixed size: stored tables, all sequences of choices, paired gains."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from group_cases import (
    PROMPTS,
    RESAMPLES,
    assert_interval,
    make_prompts,
    mixed_prompts,
    naive_groups,
    naive_ratios,
)

from blockpilot import headroom
from blockpilot.errors import BlockPilotError
from blockpilot.headroom import POLICIES, bounds_table, check_bounds, request_costs
from blockpilot.latency import LatencyModel

MOST = 9
# Both grow with size and context, so that a wrong context is a wrong sum.
LATENCY = LatencyModel(
    medians_s={
        "draft": {0: {2: 1.0, 4: 2.0}, 100: {2: 3.0, 4: 8.0}},
        "verify": {0: {1: 5.0, 4: 6.0}, 100: {1: 7.0, 4: 13.0}},
    }
)


def with_ids(prompts, lengths=(3, 40, 17)):
    ids = [[0] * lengths[i % len(lengths)] for i in range(len(prompts))]
    return prompts.assign(input_ids=ids)


def make_texts(prompts, generator, sizes=(2, 3, 4), seeds=(0,)):
    """Return ACCEPTANCE and TRAJECTORIES rows of short texts, some of them stopped by length."""
    acceptance, trajectories = [], []
    for prompt in prompts["prompt_id"]:
        for seed in seeds:
            tokens = int(generator.integers(1, MOST + 1))
            by_length = tokens == MOST or generator.random() < 0.3
            accepted = [generator.integers(0, size, tokens - 1).astype(np.int8) for size in sizes]
            key = {"prompt_id": prompt, "seed": seed}
            acceptance.append(key | {"block_sizes": list(sizes), "accepted": accepted})
            reason = "length" if by_length else "stop"
            trajectories.append(key | {"output_ids": [7] * tokens, "stop_reason": reason})
    return pd.DataFrame(acceptance), pd.DataFrame(trajectories)


def one_text(accepted, sizes, tokens, reason="stop"):
    key = {"prompt_id": "sums-00", "seed": 0}
    acceptance = pd.DataFrame([key | {"block_sizes": sizes, "accepted": accepted}])
    text = key | {"output_ids": [7] * tokens, "stop_reason": reason}
    return acceptance, pd.DataFrame([text])


def costs_of(texts, block_sizes, best_fixed, prompts=None, **settings):
    prompts = with_ids(make_prompts(1)) if prompts is None else prompts
    settings = {"max_new_tokens": 100} | settings
    rows = request_costs(
        *texts, prompts, block_sizes=block_sizes, best_fixed=best_fixed, **settings
    )
    return rows.set_index(["objective", "policy"])["cost"]


def naive_costs(acceptance, trajectory, prompt_tokens, sizes, best_fixed, latency):
    """Return the cost of every policy by trying all sequences of choices."""
    tokens = len(trajectory["output_ids"])
    limit = tokens if trajectory["stop_reason"] == "length" else MOST
    stored = dict(zip(acceptance["block_sizes"], acceptance["accepted"], strict=True))

    def step(draft, verify, anchor):
        draft, verify = (min(size, limit - anchor) for size in (draft, verify))
        accepted = 0 if draft == 1 else int(stored[draft][anchor])
        cost = 1 if latency is None else latency.round_s(draft, verify, prompt_tokens + anchor)
        return min(accepted + 1, verify, tokens - 1 - anchor), cost

    @cache
    def cheapest(choices, anchor=0):
        if anchor >= tokens - 1:
            return 0
        steps = [step(*choice, anchor) for choice in choices]
        return min(cost + cheapest(choices, anchor + count) for count, cost in steps)

    fixed = {b: cheapest(((b, b),)) for b in sizes}
    return {
        "best_fixed": fixed[best_fixed],
        "oracle": min(fixed.values()),
        "clairvoyant": cheapest(tuple((b, b) for b in sizes)),
        "clairvoyant_verify": cheapest(tuple((b, v) for b in sizes for v in sizes if v <= b)),
    }


def test_rounds_by_hand():
    # Size 3 wins at anchor 0 and size 2 at anchor 3: only a choice per round takes 2 rounds.
    texts = one_text([[0, 0, 0, 1, 0], [2, 0, 0, 0, 0]], [2, 3], tokens=6)
    costs = costs_of(texts, [2, 3], 2)["rounds"]
    assert costs[list(POLICIES)].tolist() == [4, 3, 2, 2]
    # Cutting the draft of 3 lands where the next one is accepted whole.
    texts = one_text([[0, 0, 0, 0], [1, 2, 0, 0]], [2, 3], tokens=5)
    costs = costs_of(texts, [1, 3], 3)["rounds"]
    assert costs[list(POLICIES)].tolist() == [3, 3, 2, 2]
    costs = costs_of(texts, [3], 3)["rounds"]
    assert costs[list(POLICIES)].tolist() == [3, 3, 3, 3]


def test_time_by_hand():
    # The prompt has 3 tokens, so the rounds have contexts of 3 and 5 tokens.
    texts = one_text([[1, 0, 1]], [2], tokens=4)
    costs = costs_of(texts, [2], 2, latency=LATENCY)["time"]
    expected = sum(LATENCY.round_s(2, 2, context) for context in (3, 5))
    assert costs["best_fixed"] == pytest.approx(expected, rel=1e-12)
    # Drafting pays nothing where it always fails: plain decoding is cheaper, in more rounds.
    texts = one_text([[0, 0, 0]], [2], tokens=4)
    costs = costs_of(texts, [1, 2], 2, latency=LATENCY)["time"]
    assert costs["oracle"] == pytest.approx(sum(LATENCY.verify_s(1, c) for c in (3, 4, 5)))
    assert costs["oracle"] < costs["best_fixed"]


def test_a_text_that_ended_by_length_shortens_its_last_blocks():
    # A 4 accepts nothing anywhere; a 3 accepts two drafts at anchor 1.
    accepted = [[0, 0, 1], [1, 2, 0], [0, 0, 0]]
    by_length = one_text(accepted, [2, 3, 4], tokens=4, reason="length")
    stopped = one_text(accepted, [2, 3, 4], tokens=4, reason="stop")
    # With two tokens left at anchor 1 the block of 4 has become one of 3.
    assert costs_of(by_length, [4], 4)["rounds"]["best_fixed"] == 2
    assert costs_of(stopped, [4], 4)["rounds"]["best_fixed"] == 3


@pytest.mark.parametrize("latency", [None, LATENCY])
@pytest.mark.parametrize(("sizes", "best_fixed"), [((1, 2, 3, 4), 3), ((2, 4), 4), ((3,), 3)])
def test_costs_against_all_sequences(sizes, best_fixed, latency):
    prompts = with_ids(make_prompts(20))
    acceptance, trajectories = make_texts(prompts, np.random.default_rng(1), seeds=(0, 1))
    found = request_costs(
        acceptance, trajectories.sample(frac=1, random_state=0), prompts, block_sizes=sizes,
        best_fixed=best_fixed, max_new_tokens=MOST, latency=latency,
    )  # fmt: skip
    check_bounds(found)
    found = found.set_index(["prompt_id", "seed", "objective", "policy"])
    lengths = dict(zip(prompts["prompt_id"], prompts["input_ids"].map(len), strict=True))
    own = trajectories.set_index(["prompt_id", "seed"])
    objectives = {"rounds": None} | ({} if latency is None else {"time": latency})
    assert len(found) == len(acceptance) * len(POLICIES) * len(objectives)
    for _, row in acceptance.iterrows():
        key = row["prompt_id"], row["seed"]
        for objective, cost in objectives.items():
            args = lengths[key[0]], sizes, best_fixed, cost
            for policy, expected in naive_costs(row, own.loc[key], *args).items():
                value = found.loc[(*key, objective, policy)]
                assert value["cost"] == pytest.approx(expected, rel=1e-12)
                assert value["num_tokens"] == len(own.loc[key, "output_ids"]) - 1


def test_the_table_against_naive_statistics():
    prompts = with_ids(mixed_prompts())
    acceptance, trajectories = make_texts(prompts, np.random.default_rng(2), seeds=(0, 1))
    setup = {"block_sizes": [1, 2, 4], "best_fixed": 4, "max_new_tokens": MOST, "latency": LATENCY}
    statistics = {"out_of_domain": ["poems"], "resamples": RESAMPLES, "seed": 3}
    table = bounds_table(acceptance, trajectories, prompts, **setup, **statistics)
    costs = request_costs(acceptance, trajectories, prompts, **setup)
    groups = naive_groups(prompts)
    assert list(dict.fromkeys(table["group"])) == list(groups)
    assert len(table) == len(groups) * 2 * len(POLICIES)
    for _, row in table.iterrows():
        members, objective = groups[row["group"]], row["objective"]
        values = {}
        for policy in ("best_fixed", row["policy"]):
            tops, bottoms = {}, {}
            chosen = costs[(costs["objective"] == objective) & (costs["policy"] == policy)]
            for prompt, own in chosen.groupby("prompt_id"):
                own = own[own["num_tokens"] > 0]
                is_rounds = objective == "rounds"
                tau = own["num_tokens"] / own["cost"]
                tops[prompt] = tau.tolist() if is_rounds else own["cost"].tolist()
                bottoms[prompt] = [1] * len(own) if is_rounds else own["num_tokens"].tolist()
            values[policy] = naive_ratios(members, 3, tops, bottoms)
        own, fixed = values[row["policy"]], values["best_fixed"]
        assert_interval(row, "value", *own)
        better, worse = (own, fixed) if objective == "rounds" else (fixed, own)
        gain = better[0] / worse[0] - 1, better[1] / worse[1] - 1
        assert_interval(row, "gain_over_best_fixed", *gain)
        names = {member["prompt_id"] for member in members}
        has_round = trajectories["output_ids"].map(len) > 1
        assert row["n"] == (trajectories["prompt_id"].isin(names) & has_round).sum()


def test_bounds_gain_and_the_best_fixed_size_is_the_unit():
    prompts = with_ids(make_prompts(20))
    texts = make_texts(prompts, np.random.default_rng(4))
    setup = {"block_sizes": [1, 2, 3, 4], "best_fixed": 2, "max_new_tokens": MOST}
    table = bounds_table(*texts, prompts, **setup, latency=LATENCY, resamples=RESAMPLES)
    rows = table[table["group"] == "average"].set_index(["objective", "policy"])
    for objective in ("rounds", "time"):
        own = rows.loc[objective]
        ends = own.filter(like="gain_over_best_fixed").loc["best_fixed"].tolist()
        assert ends == [0, 0, 0]
        gains = own["gain_over_best_fixed"][list(POLICIES)]
        assert gains.is_monotonic_increasing and gains["clairvoyant"] > gains["oracle"] > 0
        values = own["value"][list(POLICIES)]
        assert values.is_monotonic_increasing == (objective == "rounds")
        assert values.is_monotonic_decreasing == (objective == "time")
    alone = bounds_table(*texts, prompts, **setup, resamples=RESAMPLES)
    assert set(alone["objective"]) == {"rounds"}
    expected = table[table["objective"] == "rounds"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, expected)


def test_every_bound_is_computed_once(monkeypatch):
    calls = []

    def counted(table, choices, round_cost):
        calls.append(1)
        return clairvoyant(table, choices, round_cost)

    clairvoyant = headroom.clairvoyant
    monkeypatch.setattr(headroom, "clairvoyant", counted)
    prompts = with_ids(mixed_prompts())
    texts = make_texts(prompts, np.random.default_rng(5))
    setup = {"block_sizes": [2, 3], "best_fixed": 2, "max_new_tokens": MOST, "latency": LATENCY}
    bounds_table(*texts, prompts, **setup, out_of_domain=["poems"], resamples=10)
    # Two bounds and two objectives; the training prompts are left alone.
    assert len(calls) == 4 * int((prompts["split"] == "test").sum())


@pytest.mark.parametrize("objective", ["rounds", "time"])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_bound_that_is_worse_names_its_prompt(objective, place):
    prompts = with_ids(PROMPTS)
    costs = request_costs(
        *make_texts(prompts, np.random.default_rng(6)), prompts, block_sizes=[2, 3],
        best_fixed=2, max_new_tokens=MOST, latency=LATENCY,
    )  # fmt: skip
    check_bounds(costs)
    where = (costs["prompt_id"] == "sums-01") & (costs["objective"] == objective)
    bound, dearer = POLICIES[place], POLICIES[place - 1]
    limit = costs.loc[where & (costs["policy"] == dearer), "cost"].iloc[0]
    costs.loc[where & (costs["policy"] == bound), "cost"] = np.nextafter(limit, np.inf)
    message = f"^{objective} of {bound} on prompt 'sums-01', seed 0 is .* that of {dearer}"
    with pytest.raises(BlockPilotError, match=message):
        check_bounds(costs)
    costs.loc[where & (costs["policy"] == bound), "cost"] = np.nan
    with pytest.raises(BlockPilotError, match=f"{bound} on prompt 'sums-01', seed 0 is nan"):
        check_bounds(costs)


def test_a_false_bound_stops_the_table(monkeypatch):
    class Dear:
        cost = 99.0

    monkeypatch.setattr(headroom, "clairvoyant", lambda *arguments: Dear)
    prompts = with_ids(PROMPTS)
    texts = make_texts(prompts, np.random.default_rng(6))
    with pytest.raises(BlockPilotError, match=r"rounds of clairvoyant on prompt 'sums-00'"):
        bounds_table(*texts, prompts, block_sizes=[2], best_fixed=2, max_new_tokens=MOST)


def test_inputs_that_do_not_fit_are_errors():
    acceptance, trajectories = one_text([[0, 0, 0]], [2], tokens=4)
    with pytest.raises(BlockPilotError, match=r"best_fixed is 3; allowed: one of \[1, 2\]"):
        costs_of((acceptance, trajectories), [2, 1], 3)
    with pytest.raises(BlockPilotError, match=r"'sums-00' is 3; allowed: at least the 4 tokens"):
        costs_of((acceptance, trajectories), [2], 2, max_new_tokens=3)
    shorter = trajectories.assign(output_ids=[[7] * 3])
    with pytest.raises(BlockPilotError, match="anchors of prompt 'sums-00' is 3; allowed: 2"):
        costs_of((acceptance, shorter), [2], 2)
    with pytest.raises(BlockPilotError, match="'sums-00'; allowed: a request of the trajectories"):
        costs_of((acceptance, trajectories.assign(seed=1)), [2], 2)
    with pytest.raises(BlockPilotError, match="'sums-00'; allowed: a request of the prompts"):
        costs_of((acceptance, trajectories), [2], 2, with_ids(make_prompts(1, "other")))
    with pytest.raises(BlockPilotError, match="draft sizes up to 2"):
        costs_of((acceptance, trajectories), [2, 4], 2)
