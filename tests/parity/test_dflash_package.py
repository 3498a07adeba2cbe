"""Our draft and decode loop against the public `dflash` package, on the same weights."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from blockpilot.decode import generate
from blockpilot.draft import load_draft, save_draft
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.policies import FixedPolicy
from blockpilot.target import load_target

dflash = pytest.importorskip("dflash.model")
# The package calls transformers by the older name of `cache`.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")

POCKET = Path(__file__).resolve().parents[2] / "workflow" / "resources" / "pocket"
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES = {
    "grouped heads": {},
    "as many key heads": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 16, "num_attention_heads": 2},
    "biases": {"attention_bias": True},
    "one feature layer": {"target_layer_ids": (1,)},
    "two feature layers": {"target_layer_ids": (0, 3)},
    "slow rope": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "yarn": {"rope_parameters": YARN},
    "one layer": {"num_hidden_layers": 1},
    "coarse eps": {"rms_norm_eps": 1e-3},
}


def load_theirs(folder: Path):
    return dflash.DFlashDraftModel.from_pretrained(folder, dtype=torch.float32).eval()


def their_rounds(draft, target, prompt, block_size, max_new_tokens, stop_ids=None):
    """Return (new tokens, acceptance lengths) of the package's own greedy generation."""
    found = dflash.dflash_generate(
        draft,
        target.model,
        torch.tensor([prompt]),
        max_new_tokens=max_new_tokens,
        stop_token_ids=stop_ids,
        block_size=block_size,
        return_stats=True,
    )
    return found.output_ids[0, len(prompt) :].tolist(), found.acceptance_lengths


@pytest.fixture
def wall_clock(monkeypatch) -> None:
    """Let the package measure time without a CUDA device."""
    monkeypatch.setattr(dflash, "_cuda_time", time.perf_counter)


@torch.no_grad()
def compare_logits(ours, theirs, features: torch.Tensor, pieces: list[int], head) -> torch.Tensor:
    """Feed both drafts the context in `pieces`, a block after each; return the last logits."""
    generator = torch.Generator().manual_seed(5)
    size = 6
    total = sum(pieces)
    cache, their_cache = ours.new_cache(total + size), dflash._make_cache(theirs.config)
    for count in pieces:
        block = torch.randn(1, size, 32, generator=generator)
        start = cache.length
        end = start + count
        rows = features[:, start:end]
        ours.append_context(rows, cache)
        logits = head(ours(block, torch.arange(end, end + size)[None], cache))
        hidden = theirs(
            target_hidden=rows,
            noise_embedding=block,
            position_ids=torch.arange(start, end + size)[None],
            past_key_values=their_cache,
            use_cache=True,
        )
        dflash._crop_to(their_cache, end)
        expected = theirs.compute_logits(hidden, head)
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    return logits


@pytest.mark.parametrize("pieces", [[9], [40], [5, 1, 3, 2, 1]], ids=["short", "long", "pieces"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "as trained"])
def test_logits_on_random_weights(fused, shape, pieces, make_draft, tmp_path) -> None:
    ours = make_draft(**SHAPES[shape])
    save_draft(ours, tmp_path, torch.float32)
    if fused:
        ours.fuse()
    theirs = load_theirs(tmp_path)
    generator = torch.Generator().manual_seed(0)
    width = 32 * len(ours.config.target_layer_ids)
    features = torch.randn(1, sum(pieces), width, generator=generator)
    head = torch.nn.Linear(32, 97, bias=False).requires_grad_(False)
    logits = compare_logits(ours, theirs, features, pieces, head)
    assert logits.std() > 0.1  # not equal because nothing happens


def test_our_checkpoint_loads_in_the_package_tensor_by_tensor(make_draft, tmp_path) -> None:
    ours = make_draft(attention_bias=True)
    save_draft(ours, tmp_path, torch.float32)
    theirs = load_theirs(tmp_path)
    assert theirs.block_size == ours.block_size
    assert theirs.mask_token_id == ours.config.mask_token_id
    assert tuple(theirs.target_layer_ids) == ours.config.target_layer_ids
    state = theirs.state_dict()
    assert set(state) == set(ours.state_dict())
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())


def test_the_package_checkpoint_loads_here(make_draft, tmp_path) -> None:
    save_draft(make_draft(), tmp_path / "ours", torch.float32)
    theirs = load_theirs(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_draft(tmp_path / "theirs")
    ours = make_draft()
    assert loaded.config == ours.config
    state = loaded.state_dict()
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())


def test_features_come_from_the_same_layers(make_target, make_draft, tmp_path) -> None:
    ours = make_draft()
    save_draft(ours, tmp_path, torch.float32)
    theirs = load_theirs(tmp_path)
    target, ids = make_target(), torch.arange(12)[None]
    hidden_states = target.model(ids, output_hidden_states=True).hidden_states
    expected = dflash.extract_context_feature(hidden_states, theirs.target_layer_ids)
    features = target.forward(ids).features
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    logits = compare_logits(ours, theirs, features, [12], target.head)
    # A layer too late or too early has the same shape but gives other logits.
    for shifted_ids in ((1, 3, 2), (0, 1, 2), (0, 2, 2)):
        shifted = make_target(feature_layer_ids=shifted_ids).forward(ids).features
        other = compare_logits(ours, theirs, shifted, [12], target.head)
        assert (other - logits).abs().max() > 1e-2


@pytest.mark.usefixtures("wall_clock")
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 6, 8])
def test_whole_generations_of_the_tiny_pair(block_size, pair32, prompts, tmp_path) -> None:
    target, draft = pair32
    save_draft(draft, tmp_path, torch.float32)
    theirs = load_theirs(tmp_path)
    longest = 0
    for prompt in prompts[:10]:
        found = generate(target, draft, prompt, FixedPolicy(block_size), max_new_tokens=30)
        expected = their_rounds(theirs, target, prompt, block_size, 30)
        assert (found.output_ids, found.num_committed) == expected
        longest = max(longest, *found.num_committed)
    assert longest > 1 or block_size == 1


@pytest.mark.usefixtures("wall_clock")
@pytest.mark.parametrize("place", [0, 1, 11, 20])
def test_generations_that_stop(place, pair32, prompts, tmp_path) -> None:
    target, draft = pair32
    save_draft(draft, tmp_path, torch.float32)
    theirs = load_theirs(tmp_path)
    for prompt in prompts[:6]:
        text = generate(target, draft, prompt, FixedPolicy(1), max_new_tokens=30).output_ids
        stop_ids = [text[place], 96]
        found = generate(
            target, draft, prompt, FixedPolicy(5), max_new_tokens=30, stop_ids=stop_ids
        )
        expected = their_rounds(theirs, target, prompt, 5, 30, stop_ids)
        assert (found.output_ids, found.num_committed) == expected
        assert found.stop_reason == "stop"


@pytest.fixture(scope="module")
def pocket():
    """Return (target, our draft, their draft, prompts) of the embedded pair in float32."""
    draft = load_draft(POCKET / "draft")
    target = load_target(POCKET / "target", feature_layer_ids=draft.config.target_layer_ids)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(POCKET / "target")
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": draw_conversation(domain, 7, index)[0][0]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for domain in GENERATORS
        for index in range(10)
    ]
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return target, draft, load_theirs(POCKET / "draft"), prompts, tokenizer.eos_token_id


@pytest.mark.usefixtures("wall_clock")
@pytest.mark.parametrize("new_tokens", [96, pytest.param(192, marks=pytest.mark.full)])
@pytest.mark.parametrize("size", ["half", "trained", "two more"])
def test_acceptance_lengths_of_the_pocket_pair(size, new_tokens, pocket) -> None:
    target, draft, theirs, prompts, stop_id = pocket
    trained = draft.block_size
    block_size = {"half": trained // 2, "trained": trained, "two more": trained + 2}[size]
    policy, limits = FixedPolicy(block_size), {"max_new_tokens": new_tokens, "stop_ids": [stop_id]}
    committed = rounds = 0
    for prompt in prompts:
        found = generate(target, draft, prompt, policy, **limits)
        expected = their_rounds(theirs, target, prompt, block_size, new_tokens, [stop_id])
        assert (found.output_ids, found.num_committed) == expected
        committed += sum(found.num_committed)
        rounds += len(found.num_committed)
    assert committed > 1.2 * rounds  # a draft that is never accepted would prove little
