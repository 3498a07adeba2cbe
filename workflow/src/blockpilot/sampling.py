"""Counter-based noise and the three verification schemes.

Every random number belongs to an absolute position and a token id, so that block sizes, drafts,
policies and batches all see the same ones. With `match` and `coupled` the text is therefore a
function of target, prompt and seed alone.

- `match`: the draft proposes its argmax; accepted while it equals the token the target samples.
- `coupled`: Gumbel-max with one noise vector per position, added to the target's and to the
  draft's logits: both tend to pick the same token (Daliri, Musco, Suresh, arXiv 2408.07978).
- `rejection`: speculative sampling with residual (Leviathan et al., arXiv 2211.17192); lossless
  too, but the text depends on draft and block size.

Shapes: n = positions, b = block size, V = vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from blockpilot.errors import bad_input

SCHEMES = ("match", "coupled", "rejection")
# Random numbers of `rejection` besides the target's own: what the draft draws, and the coins.
DRAFT_STREAM, COIN_STREAM = 1, 2

_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def check_temperature(temperature: float) -> None:
    """Raise BlockPilotError unless 0 <= temperature <= 10."""
    if not 0 <= temperature <= 10:
        raise bad_input("temperature", temperature, "0 (greedy) to 10", "0 means argmax.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn; at temperature 0 all schemes are greedy and equal.

    Attributes:
        temperature: 0 is argmax.
        scheme: `match`, `coupled` or `rejection`.
        top_k: Only the k likeliest tokens may be drawn; 0 = all.
        top_p: Only the likeliest tokens that together reach this probability; 1 = all.
        draft_temperature: Of the draft in `coupled` and `rejection`; None = `temperature`.
    """

    temperature: float = 0.0
    scheme: str = "match"
    top_k: int = 0
    top_p: float = 1.0
    draft_temperature: float | None = None

    def __post_init__(self) -> None:
        """Raise BlockPilotError unless every value is possible."""
        check_temperature(self.temperature)
        if self.scheme not in SCHEMES:
            raise bad_input("decode sampling", self.scheme, ", ".join(SCHEMES), "Choose one.")
        if self.top_k < 0:
            raise bad_input("top_k", self.top_k, "an integer >= 0", "0 keeps all tokens.")
        if not 0 < self.top_p <= 1:
            raise bad_input("top_p", self.top_p, "above 0, at most 1", "1 keeps all tokens.")
        warmth = self.draft_temperature
        if warmth is not None and not 0 < warmth <= 10:
            remedy = "Leave it out to use the target's temperature."
            raise bad_input("draft_temperature", warmth, "above 0, at most 10", remedy)

    @classmethod
    def from_variant(cls, variant: Mapping) -> Sampling:
        """Return what a row of `decode.variants` says; its key `sampling` is the scheme."""
        names = ("temperature", "top_k", "top_p", "draft_temperature")
        chosen = {name: variant[name] for name in names if variant.get(name) is not None}
        return cls(scheme=variant.get("sampling", "match"), **chosen)

    @property
    def needs_noise(self) -> bool:
        """Return whether tokens are drawn at all."""
        return self.temperature > 0

    @property
    def draft_needs_noise(self) -> bool:
        """Return whether the draft's own choice takes the position's noise (`coupled`)."""
        return self.needs_noise and self.scheme == "coupled"

    def target_scores(self, logits: Tensor) -> Tensor:
        """Return logits / T [n, V] in float64, -inf outside top-k and top-p."""
        return truncate(logits.double() / self.temperature, self.top_k, self.top_p)

    def draft_scores(self, logits: Tensor) -> Tensor:
        """Return the draft's logits / its temperature [n, V], truncated like the target's."""
        warmth = self.draft_temperature or self.temperature
        return truncate(logits.double() / warmth, self.top_k, self.top_p)

    def choose(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        """Return the target's tokens [n] for its logits [n, V] and the positions' noise [n, V]."""
        if not self.needs_noise:
            return logits.argmax(-1)
        return self.target_scores(logits).add_(noise).argmax(-1)

    def propose(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        """Return the draft's tokens [n] under `match` and `coupled`; noise as in `choose`."""
        if not self.draft_needs_noise:
            return logits.argmax(-1)
        return self.draft_scores(logits).add_(noise).argmax(-1)


GREEDY = Sampling()


def truncate(scores: Tensor, top_k: int = 0, top_p: float = 1.0) -> Tensor:  # [n, V]
    """Return scores with -inf outside the k likeliest tokens and then outside the nucleus.

    The nucleus is taken from softmax(scores), after the temperature, as transformers does; the
    token that crosses `top_p` is kept.
    """
    if 0 < top_k < scores.shape[-1]:
        least = scores.topk(top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    if top_p < 1:
        ordered, order = scores.sort(dim=-1, descending=True)
        shares = ordered.softmax(-1)
        outside = shares.cumsum(-1) - shares >= top_p
        scores = scores.masked_fill(outside.scatter(-1, order, outside), float("-inf"))
    return scores


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit integer."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift int64 as if unsigned: torch's own shift repeats the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """Apply the splitmix64 finaliser, modulo 2^64, to int64 holding unsigned bits.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    x = (x ^ _shift_right(x, 30)) * _signed(_MULTIPLIERS[0])
    x = (x ^ _shift_right(x, 27)) * _signed(_MULTIPLIERS[1])
    return x ^ _shift_right(x, 31)


def noise_key(prompt_ids: Sequence[int]) -> int:
    """Return the first 8 bytes of sha256 over the unpadded prompt ids, as a signed int64."""
    digest = hashlib.sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def uniform_noise(
    keys: Tensor,  # [n] or [1] int64, `noise_key` of each row's prompt
    seed: int,
    positions: Tensor,  # [n] absolute indices in the unpadded sequence
    vocab_size: int,
) -> Tensor:  # [n, V] float64
    """Return uniform numbers strictly inside (0, 1), one per position and token.

    52 random bits and half a step, so that vocabularies where float32 uniforms would tie do not.
    """
    device = positions.device
    seeded = keys ^ mix(torch.tensor(_signed(seed), device=device))
    rows = mix(seeded + positions * _signed(_INCREMENT))
    tokens = torch.arange(vocab_size, device=device) * _signed(_INCREMENT)
    bits = _shift_right(mix(rows[:, None] + tokens), 12)
    return bits.double().add_(0.5).mul_(2.0**-52)


def gumbel_noise(keys: Tensor, seed: int, positions: Tensor, vocab_size: int) -> Tensor:
    """Return standard Gumbel noise [n, V], one number per position and token.

    Arguments are those of `uniform_noise`.
    """
    uniform = uniform_noise(keys, seed, positions, vocab_size)
    return uniform.log_().neg_().log_().neg_()


def choose_tokens(
    logits: Tensor,  # [n, V]
    sampling: Sampling,
    keys: Tensor,  # [n] or [1]
    seed: int,
    positions: Tensor,  # [n]
) -> Tensor:  # [n] int64
    """Return the target's tokens: argmax at temperature 0, else argmax(logits / T + noise)."""
    noise = None
    if sampling.needs_noise:
        noise = gumbel_noise(keys, seed, positions, logits.shape[-1])
    return sampling.choose(logits, noise)


class Sampler:
    """Draws one request's tokens, the draft's and the target's, round by round."""

    def __init__(
        self, sampling: Sampling, seed: int, prompt_ids: Sequence[int], device: torch.device
    ) -> None:
        self.sampling = sampling
        self.seed = int(seed)
        key = noise_key(prompt_ids)
        self.keys = torch.tensor([key], device=device)
        self.streams = [
            torch.tensor([key ^ _signed(stream * _INCREMENT)], device=device)
            for stream in (DRAFT_STREAM, COIN_STREAM)
        ]

    def noise(self, first_position: int, count: int, vocab_size: int) -> Tensor | None:
        """Return the noise [n, V] of a round's positions, shared by draft and target."""
        if not self.sampling.needs_noise:
            return None
        positions = self._positions(first_position, count)
        return gumbel_noise(self.keys, self.seed, positions, vocab_size)

    def propose(self, logits: Tensor, noise: Tensor | None, first_position: int) -> Tensor:
        """Return the draft's tokens [b-1] of positions first_position, first_position + 1, ..."""
        if self._rejects and len(logits):
            positions = self._positions(first_position, len(logits))
            noise = gumbel_noise(self.streams[0], self.seed, positions, logits.shape[-1])
            return self.sampling.draft_scores(logits).add_(noise).argmax(-1)
        return self.sampling.propose(logits, None if noise is None else noise[: len(logits)])

    def verify(
        self,
        logits: Tensor,  # [b, V] the target's
        noise: Tensor | None,  # [b, V]
        first_position: int,
        drafted: Tensor,  # [b-1]
        draft_logits: Tensor | None,  # [b-1, V], None without a draft
    ) -> Tensor:  # [b]
        """Return the posterior: a draft is accepted exactly where it equals the posterior."""
        if self._rejects and len(drafted):
            return self._reject(logits, noise, first_position, drafted, draft_logits)
        return self.sampling.choose(logits, noise)

    @property
    def _rejects(self) -> bool:
        return self.sampling.needs_noise and self.sampling.scheme == "rejection"

    def _positions(self, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self.keys.device)

    def _reject(
        self, logits: Tensor, noise: Tensor, first: int, drafted: Tensor, draft_logits: Tensor
    ) -> Tensor:
        """Keep each draft with probability min(1, p / q), else draw from max(p - q, 0).

        A position's numbers decide once whatever the rounds before it were: drafts behind the
        first rejection never had a say.
        """
        p = self.sampling.target_scores(logits).softmax(-1)
        q = self.sampling.draft_scores(draft_logits).softmax(-1)
        coins = uniform_noise(self.streams[1], self.seed, self._positions(first, len(drafted)), 1)
        chosen = drafted[:, None]
        keep = coins * q.gather(-1, chosen) < p[:-1].gather(-1, chosen)
        weights = p.clone()
        residual = (p[:-1] - q).clamp_(min=0)
        # p == q up to rounding: the draft was kept, or the target's own p is the residual's limit.
        weights[:-1] = torch.where(residual.sum(-1, keepdim=True) > 0, residual, p[:-1])
        posterior = (weights.log() + noise).argmax(-1)
        posterior[:-1] = torch.where(keep[:, 0], drafted, posterior[:-1])
        return posterior


def resolve_seed(seed: int | None) -> int:
    """Return `seed`, or one drawn from torch's generator so that `torch.manual_seed` works."""
    return int(torch.randint(0, 2**31, ()).item()) if seed is None else int(seed)
