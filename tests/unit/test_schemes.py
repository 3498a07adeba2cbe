"""Every verification scheme commits what the target alone would sample, however bad the draft."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from blockpilot.decode import generate
from blockpilot.policies import FixedPolicy
from blockpilot.sampling import SCHEMES, Sampler, Sampling
from blockpilot.target import TargetOutput

VOCAB_SIZE = 5
MASK = ANCHOR = VOCAB_SIZE  # the prompt's only token, after which token 0 is certain
ROWS = 20_000  # of one large block
SEEDS = 1000
CPU = torch.device("cpu")
SETTINGS = {
    "T=1": {"temperature": 1.0},
    "T=0.7": {"temperature": 0.7},
    "top_k": {"temperature": 1.0, "top_k": 3},
    "top_p": {"temperature": 0.7, "top_p": 0.8},
    "hot draft": {"temperature": 0.7, "draft_temperature": 2.5},
}


class ChainTarget:
    """A target whose logits depend on the token alone: a row of `table` [V + 1, V + 1]."""

    device, context_tokens = CPU, 100

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.vocab_size = len(table)
        self.embeddings = torch.eye(len(table), dtype=torch.float64)

    def new_cache(self, capacity: int) -> SimpleNamespace:
        return SimpleNamespace(truncate=lambda length: None)

    def forward(self, ids: Tensor, cache, want_features: bool = True) -> TargetOutput:
        hidden = self.table[ids]
        return TargetOutput(hidden, hidden[..., :0])

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


class ChainDraft:
    """A draft whose logits depend on anchor and slot."""

    config = SimpleNamespace(mask_token_id=MASK)

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # [V + 1 anchors, slots, V + 1]

    def new_cache(self, capacity: int) -> None:
        return None

    def append_context(self, features: Tensor, context: None) -> None:
        pass

    def __call__(self, embeddings: Tensor, positions: range, context: None) -> Tensor:
        return self.logits[embeddings[:, 0].argmax(-1), : len(positions)]


def make_chain() -> tuple[ChainTarget, ChainDraft]:
    """Return a pair whose logits differ widely; token 0 follows the prompt, MASK nothing."""
    generator = torch.Generator().manual_seed(5)
    table = 1.2 * torch.randn(VOCAB_SIZE + 1, VOCAB_SIZE + 1, generator=generator)
    logits = 1.5 * torch.randn(VOCAB_SIZE + 1, 3, VOCAB_SIZE + 1, generator=generator)
    logits[:, 0] += 0.5 * table
    table[:, MASK] = logits[..., MASK] = float("-inf")
    table[ANCHOR, 1:] = float("-inf")
    return ChainTarget(table.double()), ChainDraft(logits.double())


def true_pairs(target: ChainTarget, sampling: Sampling) -> np.ndarray:  # [V, V]
    """Return P(second and third token of the text)."""
    shares = sampling.target_scores(target.table[:VOCAB_SIZE]).softmax(-1)[:, :VOCAB_SIZE]
    return (shares[0][:, None] * shares).numpy()


def drawn_pairs(target, draft, sampling: Sampling, count: int) -> tuple[np.ndarray, list[int]]:
    """Return how often each pair of second and third tokens came, and all acceptances."""
    pairs, accepted = np.zeros((VOCAB_SIZE, VOCAB_SIZE), dtype=int), []
    for seed in range(count):
        found = generate(
            target,
            draft,
            [ANCHOR],
            FixedPolicy(3),
            max_new_tokens=3,
            sampling=sampling,
            seed=seed,
        )
        first, *pair = found.output_ids
        assert first == 0
        pairs[tuple(pair)] += 1
        accepted.append(found.num_accepted[0])
    return pairs, accepted


def pvalue(observed: np.ndarray, expected: np.ndarray) -> float:
    """Return the chi-square p-value of counts; 0 if something impossible was drawn."""
    expected = expected / expected.sum() * observed.sum()
    if observed[expected == 0].any():
        return 0.0
    common = expected >= 5
    seen, wanted = (np.append(x[common], x[~common].sum()) for x in (observed, expected))
    if wanted[-1] < 5:  # too rare even together
        seen, wanted = seen[:-1], wanted[:-1]
    if len(wanted) == 1:
        return 1.0
    return float(stats.chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue)


def assert_follows_the_target(scheme: str, name: str) -> list[int]:
    """Return the acceptances; raise unless the texts have the target's distribution."""
    sampling = Sampling(scheme=scheme, **SETTINGS[name])
    target, draft = make_chain()
    pairs, accepted = drawn_pairs(target, draft, sampling, SEEDS)
    expected = true_pairs(target, sampling)
    assert pvalue(pairs.sum(1), expected.sum(1)) > 1e-3
    assert pvalue(pairs, expected) > 1e-3
    for first in np.flatnonzero(pairs.sum(1) >= 100):  # the second given the first
        assert pvalue(pairs[first], expected[first]) > 1e-3
    return accepted


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_tokens_of_many_seeds_follow_the_target(scheme, name) -> None:
    accepted = assert_follows_the_target(scheme, name)
    # Accepted and corrected tokens both took part.
    assert set(accepted) == {0, 1, 2}
    assert 0.25 < np.mean(accepted) < 1.75


def keep_rejected_for_the_target(patch) -> None:
    """Draw from p instead of the residual where a draft is rejected."""
    reject = Sampler._reject

    def wrong(self, logits, noise, first, drafted, draft_logits):
        posterior = reject(self, logits, noise, first, drafted, draft_logits)
        posterior[:-1] = torch.where(
            posterior[:-1] == drafted, drafted, self.sampling.choose(logits, noise)[:-1]
        )
        return posterior

    patch.setattr(Sampler, "_reject", wrong)


def use_the_draft_temperature(patch) -> None:
    patch.setattr(Sampling, "target_scores", Sampling.draft_scores)


def propose_the_argmax(patch) -> None:
    patch.setattr(Sampler, "propose", lambda self, logits, noise, first: logits.argmax(-1))


MISTAKES = [
    (keep_rejected_for_the_target, "rejection", "T=1"),
    (propose_the_argmax, "rejection", "T=1"),
    *((use_the_draft_temperature, scheme, "hot draft") for scheme in SCHEMES),
]


@pytest.mark.parametrize(("mistake", "scheme", "name"), MISTAKES)
def test_a_mistake_would_be_noticed(mistake, scheme, name, monkeypatch) -> None:
    sampling = Sampling(scheme=scheme, **SETTINGS[name])
    target, draft = make_chain()
    expected = true_pairs(target, sampling)
    mistake(monkeypatch)
    pairs, _ = drawn_pairs(target, draft, sampling, SEEDS)
    assert pvalue(pairs, expected) < 1e-6


def accept_rows(sampling: Sampling, target: Tensor, draft: Tensor) -> tuple[float, Tensor]:
    """Return (share of accepted drafts, posterior) of one block with the same logits everywhere."""
    sampler = Sampler(sampling, 3, [1, 2], CPU)
    noise = sampler.noise(5, ROWS + 1, len(target))
    logits = draft.expand(ROWS, -1)
    drafted = sampler.propose(logits, noise, 5)
    posterior = sampler.verify(target.expand(ROWS + 1, -1), noise, 5, drafted, logits)
    return float((posterior[:-1] == drafted).double().mean()), posterior


def logit_pairs(count: int) -> list[tuple[Tensor, Tensor]]:
    """Return (target, draft) logits, the draft's ever farther away."""
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for index in range(count):
        target, other = torch.randn(2, 7, generator=generator, dtype=torch.float64)
        pairs.append((1.5 * target, 1.5 * target + 2 * other * index / count))
    return pairs


def close(found: float, expected: float) -> bool:
    """Return whether a share of ROWS draws is within five standard errors."""
    return abs(found - expected) < 5 * (max(expected * (1 - expected), 0) / ROWS) ** 0.5 + 1e-12


def coupled_acceptance(p: Tensor, q: Tensor) -> float:
    """Return P(both pick the same) of Gumbel-max with common noise.

    Token i wins both with probability 1 / sum_j max(p_j / p_i, q_j / q_i).
    """
    both = (p > 0) & (q > 0)
    ratios = torch.maximum(p / p[both, None], q / q[both, None])
    return float((1 / ratios.sum(-1)).sum())


@pytest.mark.parametrize("name", SETTINGS)
def test_acceptance_of_every_scheme_is_what_theory_says(name) -> None:
    rates = {scheme: [] for scheme in SCHEMES}
    for target, draft in logit_pairs(8):
        samplings = {scheme: Sampling(scheme=scheme, **SETTINGS[name]) for scheme in SCHEMES}
        p = samplings["match"].target_scores(target[None]).softmax(-1)[0]
        q = samplings["match"].draft_scores(draft[None]).softmax(-1)[0]
        overlap = float(torch.minimum(p, q).sum())  # 1 - TV
        expected = {
            "match": float(p[draft.argmax()]),
            "coupled": coupled_acceptance(p, q),
            "rejection": overlap,
        }
        assert expected["coupled"] >= overlap / (2 - overlap) - 1e-12  # (1 - TV) / (1 + TV)
        for scheme, sampling in samplings.items():
            rate, posterior = accept_rows(sampling, target, draft)
            assert close(rate, expected[scheme]), scheme
            counts = torch.bincount(posterior, minlength=len(target)).numpy()
            assert pvalue(counts, p.numpy()) > 1e-4, scheme
            rates[scheme].append(rate)
    means = {scheme: np.mean(values) for scheme, values in rates.items()}
    assert means["coupled"] < means["rejection"]
    if name != "hot draft":  # whose argmax is as good as that of a cold one
        assert means["match"] < means["coupled"]


def test_equal_distributions_are_always_accepted_except_by_match() -> None:
    target, _ = logit_pairs(1)[0]
    rates = {
        scheme: accept_rows(Sampling(temperature=1.0, scheme=scheme), target, target)[0]
        for scheme in SCHEMES
    }
    assert rates["coupled"] == rates["rejection"] == 1
    assert rates["match"] < 0.9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_at_temperature_zero_every_scheme_is_greedy(scheme) -> None:
    generator = torch.Generator().manual_seed(0)
    target, draft = torch.randn(2, 7, 30, generator=generator)
    sampler = Sampler(Sampling(scheme=scheme, draft_temperature=2.0), 0, [1], CPU)
    noise = sampler.noise(4, 7, 30)
    drafted = sampler.propose(draft[1:], noise, 4)
    assert torch.equal(drafted, draft[1:].argmax(-1))
    posterior = sampler.verify(target, noise, 4, drafted, draft[1:])
    assert torch.equal(posterior, target.argmax(-1))
