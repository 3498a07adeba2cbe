"""Counter-based noise and the sampling of the target: the text is a function of prompt and seed.

Every random number belongs to an absolute position and a token id, so that block sizes, drafts,
policies and batches all see the same ones.

Shapes: n = positions, V = vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from blockpilot.errors import bad_input

_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


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


def gumbel_noise(
    keys: Tensor,  # [n] or [1] int64, `noise_key` of each row's prompt
    seed: int,
    positions: Tensor,  # [n] absolute indices in the unpadded sequence
    vocab_size: int,
) -> Tensor:  # [n, V] float64
    """Return standard Gumbel noise, one number per position and token.

    52 random bits and half a step keep the uniform strictly inside (0, 1), also at vocabularies
    where float32 uniforms would tie.
    """
    device = positions.device
    seeded = keys ^ mix(torch.tensor(_signed(seed), device=device))
    rows = mix(seeded + positions * _signed(_INCREMENT))
    tokens = torch.arange(vocab_size, device=device) * _signed(_INCREMENT)
    bits = _shift_right(mix(rows[:, None] + tokens), 12)
    uniform = bits.double().add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_().log_().neg_()


def choose_tokens(
    logits: Tensor,  # [n, V]
    temperature: float,
    keys: Tensor,  # [n] or [1]
    seed: int,
    positions: Tensor,  # [n]
) -> Tensor:  # [n] int64
    """Return the target's tokens: argmax at temperature 0, else argmax(logits / T + noise)."""
    if temperature == 0:
        return logits.argmax(-1)
    noise = gumbel_noise(keys, seed, positions, logits.shape[-1])
    return noise.add_(logits, alpha=1 / temperature).argmax(-1)


class TargetSampler:
    """Chooses the target's tokens of one request; exact samples of softmax(logits / T).

    With the scheme `match` the draft proposes its argmax and is accepted while it equals the
    token chosen here.
    """

    def __init__(
        self,
        temperature: float,
        seed: int,
        prompt_ids: Sequence[int],
        device: torch.device,
        sampling: str = "match",
    ) -> None:
        check_temperature(temperature)
        if sampling != "match":
            raise bad_input("decode sampling", sampling, "match", "Set it to match.")
        self.temperature = float(temperature)
        self.seed = int(seed)
        self.keys = torch.tensor([noise_key(prompt_ids)], device=device)

    def choose(
        self,
        logits: Tensor,  # [n, V]
        first_position: int,
    ) -> Tensor:  # [n] int64
        """Return the tokens of positions first_position, first_position + 1, ..."""
        positions = torch.arange(first_position, first_position + len(logits), device=logits.device)
        return choose_tokens(logits, self.temperature, self.keys, self.seed, positions)


def check_temperature(temperature: float) -> None:
    """Raise BlockPilotError unless 0 <= temperature <= 10."""
    if not 0 <= temperature <= 10:
        raise bad_input("temperature", temperature, "0 (greedy) to 10", "0 means argmax.")


def resolve_seed(seed: int | None) -> int:
    """Return `seed`, or one drawn from torch's generator so that `torch.manual_seed` works."""
    return int(torch.randint(0, 2**31, ()).item()) if seed is None else int(seed)
