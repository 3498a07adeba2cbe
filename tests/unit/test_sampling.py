"""The noise bit for bit, the distribution of what is sampled, and refused settings."""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections.abc import Iterable

import pytest
import torch
from scipy import stats

from blockpilot.errors import BlockPilotError
from blockpilot.sampling import (
    GREEDY,
    SCHEMES,
    Sampler,
    Sampling,
    choose_tokens,
    gumbel_noise,
    mix,
    noise_key,
    resolve_seed,
    uniform_noise,
)

LIMIT = 1 << 64
INCREMENT = 0x9E3779B97F4A7C15
EDGES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1]
CPU = torch.device("cpu")
WARM = Sampling(temperature=1.0)


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


def plain_uniforms(key: int, seed: int, positions: Iterable[int], vocab_size: int) -> torch.Tensor:
    rows = [[plain_uniform(key, seed, p, t) for t in range(vocab_size)] for p in positions]
    return torch.tensor(rows, dtype=torch.float64)


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
        arguments = torch.tensor([signed(key)]), seed, torch.tensor(positions), vocab_size
        noise = gumbel_noise(*arguments)
        uniform = plain_uniforms(key, seed, positions, vocab_size)
        assert torch.equal(uniform_noise(*arguments), uniform)
        assert ((uniform > 0) & (uniform < 1)).all()
        # The same logarithms on the same shape: equality of the noise is equality of all bits of u.
        assert torch.equal(noise, -torch.log(-torch.log(uniform)))
        plain = [-math.log(-math.log(u)) for u in uniform.flatten().tolist()]
        assert noise.flatten().tolist() == pytest.approx(plain, rel=1e-13, abs=1e-13)


def test_the_noise_of_a_round_equals_plain_python_bit_for_bit() -> None:
    prompt, seed, first = [3, 1, 4, 1, 5], 92, 65
    expected = plain_uniforms(plain_key(prompt), seed, range(first, first + 6), 40)
    for scheme in SCHEMES:
        sampler = Sampler(Sampling(temperature=0.7, scheme=scheme), seed, prompt, CPU)
        noise = sampler.noise(first, 6, 40)
        assert noise.dtype == torch.float64
        assert torch.equal(noise, -torch.log(-torch.log(expected)))
    assert Sampler(GREEDY, seed, prompt, CPU).noise(first, 6, 40) is None


def test_draft_and_coins_of_rejection_have_streams_of_their_own() -> None:
    prompt = [3, 1, 4]
    sampler = Sampler(Sampling(temperature=1.0, scheme="rejection"), 6, prompt, CPU)
    for stream, key in enumerate(sampler.streams, start=1):
        plain = plain_key(prompt) ^ (stream * INCREMENT % LIMIT)
        uniform = uniform_noise(key, 6, torch.arange(4, 9), 10)
        assert torch.equal(uniform, plain_uniforms(plain, 6, range(4, 9), 10))


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
    sampling = Sampling(temperature=temperature)
    tokens = choose_tokens(logits.expand(count, -1), sampling, keys, 11, torch.arange(count))
    observed = torch.bincount(tokens, minlength=7).numpy()
    expected = torch.softmax(logits.double() / temperature, 0).numpy()
    assert stats.chisquare(observed, expected / expected.sum() * count).pvalue > 1e-3
    other = torch.softmax(logits.double() / (temperature + 0.15), 0).numpy()
    assert stats.chisquare(observed, other / other.sum() * count).pvalue < 1e-6


def test_tokens_of_neighbouring_positions_seeds_and_prompts_are_independent() -> None:
    count = 8000
    flat = torch.zeros(count, 4)
    positions = torch.arange(count)
    first = choose_tokens(flat, WARM, torch.tensor([noise_key([1])]), 0, positions)
    pairs = {
        "next position": (first[:-1], first[1:]),
        "seed": (first, choose_tokens(flat, WARM, torch.tensor([noise_key([1])]), 1, positions)),
        "prompt": (first, choose_tokens(flat, WARM, torch.tensor([noise_key([2])]), 0, positions)),
    }
    for name, (left, right) in pairs.items():
        table = torch.bincount(left * 4 + right, minlength=16).view(4, 4).numpy()
        assert stats.chi2_contingency(table).pvalue > 1e-3, name


def test_temperature_zero_is_argmax_and_a_low_temperature_nearly() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 30)
    keys, positions = torch.tensor([noise_key([1])]), torch.arange(50)
    for sampling in (GREEDY, Sampling(temperature=1e-4), Sampling(temperature=1.0, top_k=1)):
        tokens = choose_tokens(logits, sampling, keys, 0, positions)
        assert torch.equal(tokens, logits.argmax(-1))
    assert not torch.equal(choose_tokens(logits, WARM, keys, 0, positions), logits.argmax(-1))


def test_the_sampler_counts_positions_from_the_first() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 30)
    sampling = Sampling(temperature=0.8)
    sampler = Sampler(sampling, 4, [5, 6, 7], CPU)
    drafted = torch.zeros(5, dtype=torch.long)

    def verify(logits, first: int) -> torch.Tensor:
        noise = sampler.noise(first, len(logits), 30)
        return sampler.verify(logits, noise, first, drafted[: len(logits) - 1], None)

    whole = verify(logits, 10)
    keys = torch.tensor([noise_key([5, 6, 7])])
    assert torch.equal(whole, choose_tokens(logits, sampling, keys, 4, torch.arange(10, 16)))
    # A block of any size sees the same noise at the same position.
    assert torch.equal(whole[2:5], verify(logits[2:5], 12))
    assert not torch.equal(whole, verify(logits, 11))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"temperature": value}, f"temperature is {value}; allowed: 0 .* 10")
            for value in (-1, -1e-9, 10.5, float("nan"), float("inf"))
        ),
        ({"scheme": "nope"}, r"sampling is 'nope'; allowed: match, coupled, rejection"),
        ({"top_k": -1}, r"top_k is -1; allowed: an integer >= 0"),
        *(
            ({"top_p": value}, rf"top_p is {value}; allowed: above 0, at most 1")
            for value in (0, -0.1, 1.0001, float("nan"))
        ),
        *(
            ({"draft_temperature": value}, rf"draft_temperature is {value}; allowed: above 0")
            for value in (0, -1, 11, float("nan"))
        ),
    ],
)
def test_impossible_settings_are_refused(settings, message) -> None:
    with pytest.raises(BlockPilotError, match=message):
        Sampling(**{"temperature": 1.0, **settings})


def test_a_variant_becomes_a_sampling() -> None:
    assert Sampling.from_variant({"temperature": 0.0}) == GREEDY == Sampling()
    variant = {"temperature": 0.7, "sampling": "coupled", "top_k": 5, "top_p": 0.9, "seeds": [1]}
    expected = Sampling(temperature=0.7, scheme="coupled", top_k=5, top_p=0.9)
    assert Sampling.from_variant(variant) == expected
    assert Sampling.from_variant({**variant, "draft_temperature": None}) == expected
    warm = Sampling.from_variant({**variant, "draft_temperature": 1.5})
    assert (warm.draft_temperature, warm.scheme, warm.temperature) == (1.5, "coupled", 0.7)


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
