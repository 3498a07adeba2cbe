"""Top-k and top-p: by hand, against transformers, and what is drawn under them."""

from __future__ import annotations

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from blockpilot.sampling import Sampling, choose_tokens, noise_key, truncate

FLAT = torch.tensor([0.5, 0.125, 0.3, 0.075]).log()
STEEP = torch.tensor([0.0, 0.9, 0.06, 0.04]).log()


@pytest.mark.parametrize(
    ("top_k", "top_p", "flat", "steep"),
    [
        (0, 1.0, {0, 1, 2, 3}, {1, 2, 3}),
        (4, 1.0, {0, 1, 2, 3}, {1, 2, 3}),
        (9, 1.0, {0, 1, 2, 3}, {1, 2, 3}),
        (3, 1.0, {0, 1, 2}, {1, 2, 3}),
        (2, 1.0, {0, 2}, {1, 2}),
        (1, 1.0, {0}, {1}),
        (0, 0.45, {0}, {1}),
        (0, 0.6, {0, 2}, {1}),  # the token that crosses stays
        (0, 0.9, {0, 1, 2}, {1}),
        (0, 0.95, {0, 1, 2, 3}, {1, 2}),
        (0, 1e-9, {0}, {1}),  # never nothing
        (2, 0.6, {0}, {1}),  # 0.5 of 0.8 crosses: the nucleus is of what is left
        (3, 0.95, {0, 1, 2}, {1, 2}),
    ],
)
def test_truncation_by_hand(top_k, top_p, flat, steep) -> None:
    before = torch.stack([FLAT, STEEP])
    found = truncate(before.clone(), top_k, top_p)
    kept = [set(row.isfinite().nonzero()[:, 0].tolist()) for row in found]
    assert kept == [flat, steep]
    inside = found.isfinite()
    assert torch.equal(found[inside], before[inside])
    assert (found[~inside] == float("-inf")).all()


def test_equals_of_the_least_stay() -> None:
    scores = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert truncate(scores, top_k=2).isfinite().tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("top_k", [0, 1, 3, 50, 200])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.01])
def test_truncation_equals_that_of_transformers(top_k, top_p) -> None:
    torch.manual_seed(top_k)
    scores = 3 * torch.randn(40, 200, dtype=torch.float64)
    expected = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    expected = TopPLogitsWarper(top_p)(None, expected) if top_p < 1 else expected
    assert torch.equal(truncate(scores, top_k, top_p), expected)


def test_truncation_is_of_the_tempered_scores() -> None:
    torch.manual_seed(0)
    logits = 2 * torch.randn(50, 30)
    sampling = Sampling(temperature=0.5, top_k=9, top_p=0.8, draft_temperature=3.0)
    target, draft = sampling.target_scores(logits), sampling.draft_scores(logits)
    assert torch.equal(target, truncate(logits.double() / 0.5, 9, 0.8))
    assert torch.equal(draft, truncate(logits.double() / 3.0, 9, 0.8))
    # Colder scores reach the nucleus with fewer tokens.
    assert target.isfinite().sum() < draft.isfinite().sum()
    without = Sampling(temperature=0.5, top_k=9, top_p=0.8)
    assert torch.equal(without.draft_scores(logits), target)


def test_only_what_is_left_is_drawn() -> None:
    keys, positions = torch.tensor([noise_key([1])]), torch.arange(2000)
    for settings, kept in (
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_p": 0.6}, {0, 2}),
        ({}, set(range(4))),
    ):
        sampling = Sampling(temperature=1.0, **settings)
        tokens = choose_tokens(FLAT.expand(2000, -1), sampling, keys, 0, positions)
        assert set(tokens.tolist()) == kept
