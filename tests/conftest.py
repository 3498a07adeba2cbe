"""Tiny models that all tests share: built once per session, on one CPU core, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from blockpilot.checkpoints import DraftConfig
from blockpilot.draft import DFlashDraft
from blockpilot.sampling import Sampling
from blockpilot.target import Target
from blockpilot.training.draft import DraftTraining, train_draft
from blockpilot.training.examples import Example
from blockpilot.training.loop import LoopSettings
from blockpilot.trajectories import decode_batch

VOCAB_SIZE = 97
CONTEXT_TOKENS = 256
# The last id is the last layer, whose features are taken after the final norm.
FEATURE_LAYER_IDS = (0, 2, 3)


class Pair(NamedTuple):
    """A target and a draft that fits it."""

    target: Target
    draft: DFlashDraft


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Target]:
    """Return a function that builds a random Qwen3 target; large weights make its text varied."""

    def make(
        dtype: torch.dtype = torch.float32,
        feature_layer_ids: tuple[int, ...] = FEATURE_LAYER_IDS,
        seed: int = 0,
        **changes,
    ) -> Target:
        values = {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": CONTEXT_TOKENS,
            "tie_word_embeddings": True,
            "initializer_range": 0.5,
        }
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**{**values, **changes}))
        return Target(model.to(dtype), feature_layer_ids)

    return make


@pytest.fixture(scope="session")
def draft_config() -> DraftConfig:
    """Return the configuration of the tiny draft, trained block size 4."""
    return DraftConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=VOCAB_SIZE,
        block_size=4,
        mask_token_id=VOCAB_SIZE - 1,
        target_layer_ids=FEATURE_LAYER_IDS,
        num_target_layers=4,
        max_position_embeddings=CONTEXT_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )


@pytest.fixture(scope="session")
def make_draft(draft_config: DraftConfig) -> Callable[..., DFlashDraft]:
    """Return a function that builds a random draft, norms and biases included."""

    def make(dtype: torch.dtype = torch.float32, seed: int = 0, **changes) -> DFlashDraft:
        generator = torch.Generator().manual_seed(seed)
        draft = DFlashDraft(replace(draft_config, **changes))
        for parameter in draft.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1 and bool((parameter == 1).all())
            parameter.data = 1 + 0.2 * noise if is_norm else 0.2 * noise
        return draft.cast(dtype).eval().requires_grad_(False)

    return make


@pytest.fixture(scope="session")
def copy_draft() -> Callable[..., DFlashDraft]:
    """Return a function that copies a draft into another precision or configuration."""

    def copy(draft: DFlashDraft, dtype: torch.dtype, **changes) -> DFlashDraft:
        other = DFlashDraft(replace(draft.config, **changes))
        other.load_state_dict(draft.state_dict())
        return other.cast(dtype).eval().requires_grad_(False)

    return copy


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Return prompts of 2 to 13 tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 14, (64,), generator=generator).tolist()
    return [torch.randint(0, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]


@pytest.fixture(scope="session")
def examples(make_target, prompts) -> list[Example]:
    """Return conversations whose responses the tiny target wrote, greedy and sampled."""
    target = make_target()
    found = []
    for temperature in (0.0, 1.0):
        trajectories = decode_batch(
            target,
            prompts,
            max_new_tokens=48,
            stop_ids=(),
            sampling=Sampling(temperature=temperature),
        )
        for prompt, trajectory in zip(prompts, trajectories, strict=True):
            ids = prompt + trajectory.output_ids
            is_response = [False] * len(prompt) + [True] * len(trajectory.output_ids)
            found.append(Example(ids, is_response, "tiny"))
    return found


@pytest.fixture(scope="session")
def pair32(make_target, draft_config, examples, tmp_path_factory) -> Pair:
    """Return a float32 pair whose draft is trained long enough to be accepted now and then."""
    target = make_target()
    draft, _ = train_draft(
        target,
        examples,
        examples[:4],
        draft_config,
        DraftTraining(anchors_per_example=16, batch_tokens=1024),
        LoopSettings(steps=100, learning_rate=1e-2, evaluate_every_steps=100),
        tmp_path_factory.mktemp("draft") / "training.safetensors",
    )
    return Pair(target, draft.eval().requires_grad_(False))


@pytest.fixture(scope="session")
def pair64(make_target, copy_draft, pair32) -> Pair:
    """Return the same pair in float64."""
    return Pair(make_target(torch.float64), copy_draft(pair32.draft, torch.float64))
