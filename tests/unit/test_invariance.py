"""Lossless decoding: block size, draft, scheme and batch never change the text."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from blockpilot.decode import generate
from blockpilot.policies import ArPolicy, FixedPolicy
from blockpilot.sampling import GREEDY, SCHEMES, Sampling
from blockpilot.trajectories import decode_batch

NEW_TOKENS = 32
SAMPLED_TOKENS = 24
SEED = 5
BLOCK_SIZES = range(1, 9)  # 1..2B
BUSY = [0, 4, 6, 9]  # prompts on which the tiny draft has rounds of many lengths
# Their text depends on target, prompt and seed alone; that of `rejection` on more.
INVARIANT = ("match", "coupled")
SAMPLINGS = {
    "T=1": Sampling(temperature=1.0),
    "T=0.7": Sampling(temperature=0.7),
    "truncated": Sampling(temperature=1.0, top_k=5, top_p=0.9),
}


def ar_text(target, prompt, sampling: Sampling, count: int = NEW_TOKENS, seed=SEED) -> list[int]:
    settings = {"max_new_tokens": count, "sampling": sampling, "seed": seed}
    return generate(target, None, prompt, ArPolicy(), **settings).output_ids


def sampled_texts(target, prompts, sampling: Sampling, seed: int = SEED) -> list[list[int]]:
    return [ar_text(target, prompt, sampling, SAMPLED_TOKENS, seed) for prompt in prompts]


@pytest.mark.parametrize("index", BUSY)
def test_greedy_text_is_autoregressive_for_every_block_size(index, pair64, prompts) -> None:
    target, draft = pair64
    prompt = prompts[index]
    text = ar_text(target, prompt, GREEDY)
    ids = torch.tensor([prompt + text])
    theirs = target.model.generate(
        ids[:, : len(prompt)],
        attention_mask=torch.ones(1, len(prompt)),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )
    assert theirs.tolist() == ids.tolist()
    top = target.model(ids[:, :-1]).logits[0, len(prompt) - 1 :].topk(2)
    assert top.indices[:, 0].tolist() == text
    # Wide margins: equality is not luck. Varied text: equality is not for want of choice.
    assert float((top.values[:, 0] - top.values[:, 1]).min()) > 1e-9
    assert len(set(text)) >= 3
    for block_size in BLOCK_SIZES:
        found = generate(target, draft, prompt, FixedPolicy(block_size), max_new_tokens=NEW_TOKENS)
        assert found.output_ids == text, block_size
        assert sum(found.num_committed) == NEW_TOKENS - 1
        assert len(found.block_sizes) == len(found.num_committed) == len(found.num_accepted)
        assert found.stop_reason == "length"
        left = NEW_TOKENS - 1
        for size, accepted, count in zip(
            found.block_sizes, found.num_accepted, found.num_committed, strict=True
        ):
            assert size == min(block_size, left + 1)
            assert count == min(accepted + 1, left)
            assert accepted < size
            left -= count


@pytest.mark.parametrize("scheme", SCHEMES)
def test_greedy_rounds_do_not_depend_on_the_scheme(scheme, pair64, prompts) -> None:
    sampling = Sampling(scheme=scheme, draft_temperature=0.5)
    for prompt in (prompts[index] for index in BUSY):
        settings = {"max_new_tokens": NEW_TOKENS, "seed": SEED}
        plain = generate(*pair64, prompt, FixedPolicy(5), **settings)
        found = generate(*pair64, prompt, FixedPolicy(5), sampling=sampling, **settings)
        assert found.output_ids == plain.output_ids == ar_text(pair64.target, prompt, GREEDY)
        assert found.num_accepted == plain.num_accepted


@pytest.mark.parametrize("name", SAMPLINGS)
def test_sampled_text_is_that_of_this_seed_and_this_temperature(name, pair64, prompts) -> None:
    some = [prompts[index] for index in BUSY]
    texts = sampled_texts(pair64.target, some, SAMPLINGS[name])
    assert texts != sampled_texts(pair64.target, some, SAMPLINGS[name], seed=SEED + 1)
    for other in (GREEDY, *(s for key, s in SAMPLINGS.items() if key != name)):
        assert texts != sampled_texts(pair64.target, some, other)


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("scheme", INVARIANT)
def test_sampled_text_is_the_same_for_every_block_size(scheme, name, pair64, prompts) -> None:
    some = [prompts[index] for index in BUSY]
    texts = sampled_texts(pair64.target, some, SAMPLINGS[name])  # by `match`
    settings = {"sampling": replace(SAMPLINGS[name], scheme=scheme), "seed": SEED}
    accepted = set()
    for block_size in BLOCK_SIZES:
        policy = FixedPolicy(block_size)
        for prompt, text in zip(some, texts, strict=True):
            found = generate(*pair64, prompt, policy, max_new_tokens=SAMPLED_TOKENS, **settings)
            assert found.output_ids == text, block_size
            accepted.update(found.num_accepted)
    assert len(accepted) >= 3  # equality is not for want of drafts


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("scheme", INVARIANT)
def test_sampled_text_is_the_same_in_every_batch(scheme, name, pair64, prompts) -> None:
    some = prompts[:8]
    sampling = replace(SAMPLINGS[name], scheme=scheme)
    texts = sampled_texts(pair64.target, some, sampling)
    settings = {"max_new_tokens": SAMPLED_TOKENS, "sampling": sampling, "seed": SEED}
    for batch_size in (1, 3, 8):
        for order in (list(range(8)), [5, 0, 7, 2, 1, 6, 3, 4]):
            for at in range(0, 8, batch_size):
                rows = order[at : at + batch_size]
                batch = decode_batch(
                    pair64.target, [some[row] for row in rows], stop_ids=(), **settings
                )
                assert [t.output_ids for t in batch] == [texts[row] for row in rows]


@pytest.mark.parametrize("name", SAMPLINGS)
def test_neither_draft_nor_its_temperature_changes_a_coupled_text(
    name, pair64, make_draft, prompts
) -> None:
    target, draft = pair64
    sampling = replace(SAMPLINGS[name], scheme="coupled")
    hot, cold = (replace(sampling, draft_temperature=t) for t in (3.0, 0.1))
    some = [prompts[index] for index in BUSY]
    texts = sampled_texts(target, some, sampling)
    untrained = make_draft(torch.float64, seed=1)
    rounds = {}
    for key, other, setting in (
        ("own", draft, sampling),
        ("untrained", untrained, sampling),
        ("hot", draft, hot),
        ("cold", draft, cold),
    ):
        for block_size in (2, 5, 8):
            settings = {"max_new_tokens": SAMPLED_TOKENS, "sampling": setting, "seed": SEED}
            found = [generate(target, other, p, FixedPolicy(block_size), **settings) for p in some]
            assert [generation.output_ids for generation in found] == texts, key
            rounds.setdefault(key, []).append([generation.num_accepted for generation in found])
    # The drafts were different ones, and so were the rounds.
    assert all(rounds[key] != rounds["own"] for key in ("untrained", "hot", "cold"))
