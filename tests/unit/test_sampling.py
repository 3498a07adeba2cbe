"""The noise bit for bit, the distribution of what is sampled, and refused settings."""

from __future__ import annotations

import hashlib
import math
import random
import struct

import pytest
import torch
from scipy import stats

from blockpilot.errors import BlockPilotError
from blockpilot.sampling import (
    TargetSampler,
    choose_tokens,
    gumbel_noise,
    mix,
    noise_key,
    resolve_seed,
)

LIMIT = 1 << 64
INCREMENT = 0x9E3779B97F4A7C15
EDGES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1]


def plain_mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % LIMIT
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % LIMIT
    return x ^ (x >> 31)


def plain_key(prompt_ids: list[int]) -> int:
    data = b"".join(struct.pack("<q", token) for token in prompt_ids)
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def plain_uniform(key: int, seed: int, position: int, token: int) -> float:
    x = (key ^ plain_mix(seed)) + position * INCREMENT
    x = plain_mix((plain_mix(x % LIMIT) + token * INCREMENT) % LIMIT)
    return ((x >> 12) + 0.5) * 2.0**-52


def signed(x: int) -> int:
    return x - LIMIT if x >= LIMIT // 2 else x


def test_mix_is_the_splitmix64_finaliser() -> None:
    # The first outputs of the reference generator with seed 0 are mix(1 c), mix(2 c), mix(3 c).
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    inputs = torch.tensor([signed(i * INCREMENT % LIMIT) for i in (1, 2, 3)])
    assert [x % LIMIT for x in mix(inputs).tolist()] == outputs


def test_mix_equals_plain_python_on_all_bit_patterns() -> None:
    rng = random.Random(0)
    values = [*EDGES, LIMIT - 1, LIMIT // 2, *(rng.getrandbits(64) for _ in range(2000))]
    found = mix(torch.tensor([signed(x) for x in values])).tolist()
    assert [x % LIMIT for x in found] == [plain_mix(x) for x in values]


def test_noise_key_is_the_first_bytes_of_sha256() -> None:
    for prompt in ([0], [1, 2, 3], [151_935, 0, 7], list(range(500))):
        assert noise_key(prompt) % LIMIT == plain_key(prompt)
        assert -LIMIT // 2 <= noise_key(prompt) < LIMIT // 2
    assert noise_key([1, 2]) != noise_key([2, 1])
    assert noise_key(torch.tensor([5, 6])) == noise_key([5, 6])


def test_noise_equals_plain_python_bit_for_bit() -> None:
    rng = random.Random(1)
    vocab_size = 50
    for seed in [*EDGES, *(rng.getrandbits(63) for _ in range(12))]:
        key = rng.getrandbits(64)
        positions = [0, 1, 2, 2047, 131_072, rng.randrange(10**6)]
        noise = gumbel_noise(torch.tensor([signed(key)]), seed, torch.tensor(positions), vocab_size)
        uniform = torch.tensor(
            [[plain_uniform(key, seed, p, t) for t in range(vocab_size)] for p in positions],
            dtype=torch.float64,
        )
        assert ((uniform > 0) & (uniform < 1)).all()
        # The same logarithms on the same shape: equality of the noise is equality of all bits of u.
        assert torch.equal(noise, -torch.log(-torch.log(uniform)))
        plain = [-math.log(-math.log(u)) for u in uniform.flatten().tolist()]
        assert noise.flatten().tolist() == pytest.approx(plain, rel=1e-13, abs=1e-13)


def test_noise_of_extreme_tokens_and_positions_is_finite() -> None:
    noise = gumbel_noise(torch.tensor([noise_key([1])]), 0, torch.arange(3), 200_000)
    assert torch.isfinite(noise).all()
    # Standard Gumbel: mean 0.5772, variance pi^2 / 6.
    assert abs(float(noise.mean()) - 0.57722) < 0.01
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.02
    # 52 bits leave next to no ties at large vocabularies; float32 uniforms would have hundreds.
    assert len(noise[0].unique()) == 200_000


def test_each_row_has_its_own_key() -> None:
    keys = torch.tensor([noise_key([1]), noise_key([2])])
    both = gumbel_noise(keys, 3, torch.tensor([7, 7]), 20)
    for row in range(2):
        alone = gumbel_noise(keys[row : row + 1], 3, torch.tensor([7]), 20)
        assert torch.equal(both[row], alone[0])
    assert not torch.equal(both[0], both[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_follow_the_softmax_of_the_logits(temperature, dtype) -> None:
    logits = torch.tensor([2.0, 1.5, 0.0, -1.0, 0.7, 1.9, -0.3], dtype=dtype)
    count = 20_000
    keys = torch.tensor([noise_key([9, 9, 9])])
    tokens = choose_tokens(logits.expand(count, -1), temperature, keys, 11, torch.arange(count))
    observed = torch.bincount(tokens, minlength=7).numpy()
    expected = torch.softmax(logits.double() / temperature, 0).numpy()
    assert stats.chisquare(observed, expected / expected.sum() * count).pvalue > 1e-3
    other = torch.softmax(logits.double() / (temperature + 0.15), 0).numpy()
    assert stats.chisquare(observed, other / other.sum() * count).pvalue < 1e-6


def test_tokens_of_neighbouring_positions_seeds_and_prompts_are_independent() -> None:
    count = 8000
    flat = torch.zeros(count, 4)
    positions = torch.arange(count)
    first = choose_tokens(flat, 1.0, torch.tensor([noise_key([1])]), 0, positions)
    pairs = {
        "next position": (first[:-1], first[1:]),
        "seed": (first, choose_tokens(flat, 1.0, torch.tensor([noise_key([1])]), 1, positions)),
        "prompt": (first, choose_tokens(flat, 1.0, torch.tensor([noise_key([2])]), 0, positions)),
    }
    for name, (left, right) in pairs.items():
        table = torch.bincount(left * 4 + right, minlength=16).view(4, 4).numpy()
        assert stats.chi2_contingency(table).pvalue > 1e-3, name


def test_temperature_zero_is_argmax_and_a_low_temperature_nearly() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 30)
    keys, positions = torch.tensor([noise_key([1])]), torch.arange(50)
    assert torch.equal(choose_tokens(logits, 0, keys, 0, positions), logits.argmax(-1))
    assert torch.equal(choose_tokens(logits, 1e-4, keys, 0, positions), logits.argmax(-1))
    assert not torch.equal(choose_tokens(logits, 1.0, keys, 0, positions), logits.argmax(-1))


def test_the_sampler_counts_positions_from_the_first() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 30)
    sampler = TargetSampler(0.8, 4, [5, 6, 7], torch.device("cpu"))
    whole = sampler.choose(logits, 10)
    keys = torch.tensor([noise_key([5, 6, 7])])
    assert torch.equal(whole, choose_tokens(logits, 0.8, keys, 4, torch.arange(10, 16)))
    # A block of any size sees the same noise at the same position.
    assert torch.equal(whole[2:5], sampler.choose(logits[2:5], 12))
    assert not torch.equal(whole, sampler.choose(logits, 11))


@pytest.mark.parametrize("temperature", [-1, -1e-9, 10.5, float("nan"), float("inf")])
def test_impossible_temperatures_are_refused(temperature) -> None:
    with pytest.raises(BlockPilotError, match=f"temperature is {temperature}; allowed: 0 .* 10"):
        TargetSampler(temperature, 0, [1], torch.device("cpu"))


def test_unknown_schemes_are_refused() -> None:
    with pytest.raises(BlockPilotError, match=r"sampling is 'nope'; allowed: .*match"):
        TargetSampler(1.0, 0, [1], torch.device("cpu"), sampling="nope")


def test_without_a_seed_torch_manual_seed_decides() -> None:
    torch.manual_seed(3)
    first = [resolve_seed(None) for _ in range(3)]
    torch.manual_seed(3)
    assert [resolve_seed(None) for _ in range(3)] == first
    assert len(set(first)) == 3
    torch.manual_seed(4)
    assert resolve_seed(None) != first[0]


def test_a_given_seed_is_kept_and_draws_nothing() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert resolve_seed(17) == 17
    assert resolve_seed(0) == 0
    assert torch.equal(torch.get_rng_state(), before)
