"""The fused layers compute what transformers and the unfused draft compute."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from blockpilot import fused
from blockpilot.fused import Head, Product, RotaryTable, can_fuse, fuse_rows
from blockpilot.target import Target

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "attn_implementation": "sdpa",
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
BIASES = {"attention_bias": True, "mlp_bias": True}
MODELS = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "qwen3 with biases": (Qwen3Config, Qwen3ForCausalLM, {"attention_bias": True}),
    "qwen3 with yarn": (Qwen3Config, Qwen3ForCausalLM, {"rope_parameters": YARN}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama with biases": (
        LlamaConfig,
        LlamaForCausalLM,
        {"attention_bias": True, "mlp_bias": True},
    ),
    "llama3": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3}),
}


def make_model(name: str, **changes):
    kind, model, own = MODELS[name]
    torch.manual_seed(0)
    made = model(kind(**SHAPE | own | changes)).to(torch.float64)
    for parameter in made.parameters():  # norms and biases start at 1 and 0: any mix-up would pass
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def make_targets(name: str) -> tuple[Target, Target]:
    """Return the same model twice: fused, and as transformers runs it."""
    own, plain = Target(make_model(name), (0, 2)), Target(make_model(name), (0, 2))
    assert own._fused is not None
    plain._fused = None
    plain._watch_layers()
    return own, plain


def assert_same(first, second) -> None:
    # Transformers' norms round to float32 even in float64.
    torch.testing.assert_close(first.hidden, second.hidden, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.features, second.features, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_prompts_blocks_and_single_tokens_equal_those_of_transformers(name) -> None:
    own, plain = make_targets(name)
    ids = torch.randint(0, 50, (1, 70), generator=torch.Generator().manual_seed(1))
    assert_same(own.forward(ids), plain.forward(ids))
    caches = own.new_cache(80), plain.new_cache(80)
    for start, end in ((0, 60), (60, 61), (61, 66), (66, 70)):
        chunk = ids[:, start:end]
        outputs = [t.forward(chunk, c) for t, c in zip((own, plain), caches, strict=True)]
        assert_same(*outputs)
    for layer in range(3):
        keys = [cache.layers[layer].keys[:, :, :70] for cache in caches]
        torch.testing.assert_close(*keys, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_padded_rows_equal_those_of_transformers(name) -> None:
    own, plain = make_targets(name)
    ids = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]])
    visible = torch.ones(6, 6, dtype=torch.bool).tril()[None, None].repeat(2, 1, 1, 1)
    visible[1, :, 2:, :2] = False
    outputs = [t.forward(ids, None, positions, visible) for t in (own, plain)]
    assert_same(*outputs)


def test_features_are_left_out_where_nobody_wants_them() -> None:
    fused, _ = make_targets("qwen3")
    assert (
        fused.forward(torch.ones(1, 3, dtype=torch.long), want_features=False).features.numel() == 0
    )


def test_the_model_itself_still_works_and_shares_its_weights() -> None:
    model = make_model("llama with biases")
    ids = torch.randint(0, 50, (1, 9), generator=torch.Generator().manual_seed(1))
    before = model(ids).logits
    target = Target(model)
    torch.testing.assert_close(model(ids).logits, before)
    layer, own = model.model.layers[1], target._fused.layers[1]
    storage = own.qkv.weight.untyped_storage().data_ptr()
    for projection in (layer.self_attn.q_proj, layer.self_attn.v_proj):
        assert projection.weight.untyped_storage().data_ptr() == storage
    layer.self_attn.k_proj.weight.data.zero_()
    assert (own.qkv.weight[32:48] == 0).all()
    assert (own.qkv.weight[:32] != 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "eager"},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ],
    ids=["eager", "activation", "rope", "sliding"],
)
def test_what_fused_layers_cannot_do_is_left_to_transformers(changes) -> None:
    model = make_model("qwen3", **changes)
    assert not can_fuse(model)
    target = Target(model, (0,))
    assert target._fused is None
    assert target.forward(torch.ones(1, 3, dtype=torch.long)).features.shape == (1, 3, 32)


def test_fused_rows_are_the_modules_side_by_side() -> None:
    one, two = torch.nn.Linear(4, 3), torch.nn.Linear(4, 2)
    x = torch.randn(5, 4)
    expected = torch.cat([one(x), two(x)], dim=-1)
    torch.testing.assert_close(torch.nn.functional.linear(x, *fuse_rows([one, two])), expected)


def test_small_float32_weights_are_packed_and_large_or_precise_ones_are_not(monkeypatch) -> None:
    maps = [torch.nn.Linear(40, 30), torch.nn.Linear(40, 20)]
    x = torch.randn(2, 7, 40)
    expected = torch.cat([own(x) for own in maps], dim=-1)
    packed = Product(maps)
    assert packed.packed is not None
    torch.testing.assert_close(packed(x), expected, rtol=1e-5, atol=1e-5)
    many = torch.randn(fused.PACKED_ROWS + 1, 40)
    assert torch.equal(packed(many), torch.nn.functional.linear(many, packed.weight, packed.bias))
    assert Product([own.double() for own in deepcopy(maps)]).packed is None
    monkeypatch.setattr(fused, "PACK_BYTES", 40 * 50 * 4 - 1)
    plain = Product(maps)
    assert plain.packed is None
    torch.testing.assert_close(plain(x), expected)


def test_gradients_pass_through_the_head() -> None:
    module = torch.nn.Linear(6, 9, bias=False)
    head, x = Head(module), torch.randn(3, 6, requires_grad=True)
    head(x).sum().backward()
    torch.testing.assert_close(x.grad, module.weight.sum(0).expand(3, 6))
    torch.testing.assert_close(head(x.detach()), module(x.detach()), rtol=1e-5, atol=1e-5)


def test_a_rotary_table_grows_without_changing() -> None:
    rotary = make_model("qwen3").model.rotary_emb
    table = RotaryTable(rotary, torch.zeros(1, dtype=torch.float64))
    first = [part.clone() for part in table.rows(2, 3)]
    table.reserve(100)
    for before, after in zip(first, table.rows(2, 3), strict=True):
        assert torch.equal(before, after)
    for part, everywhere in zip(table.rows(2, 3), table.at(torch.tensor([[2, 3, 4]])), strict=True):
        assert torch.equal(part, everywhere[0])


@pytest.mark.parametrize("bias", [False, True])
def test_a_fused_draft_equals_the_unfused_one(bias, make_draft) -> None:
    drafts = [make_draft(torch.float64, attention_bias=bias) for _ in range(2)]
    drafts[1].load_state_dict(drafts[0].state_dict())
    drafts[1].fuse()
    size = drafts[0].config.hidden_size
    features = torch.randn(1, 7, len(drafts[0].config.target_layer_ids) * size, dtype=torch.float64)
    block, outputs, contexts = torch.randn(1, 4, size, dtype=torch.float64), [], []
    for draft in drafts:
        cache = draft.new_cache(16)
        draft.append_context(features[:, :5], cache)
        draft.append_context(features[:, 5:], cache)
        outputs.append((draft(block, range(7, 11), cache), cache.all_keys[..., :7, :]))
        contexts.append(draft.context_keys_values(features, torch.arange(7)[None]))
        positions = torch.arange(7, 11)[None]
        torch.testing.assert_close(draft(block, positions, cache), outputs[-1][0])
    for one, other in zip(*outputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    for one, other in zip(*contexts, strict=True):
        torch.testing.assert_close(one[0], other[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one[1], other[1])
