"""The draft: its context cache, its public checkpoint layout, and checkpoints that do not fit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from blockpilot.checkpoints import DraftConfig, check_pair, read_draft_config, read_target_config
from blockpilot.draft import load_draft, save_draft
from blockpilot.errors import BlockPilotError
from blockpilot.target import load_target, resolve_dtype

OWN_KEYS = ("block_size", "mask_token_id", "target_layer_ids")


@pytest.fixture
def folder(make_draft, tmp_path) -> Path:
    save_draft(make_draft(), tmp_path / "draft", torch.float32)
    return tmp_path / "draft"


def edit_config(folder: Path, **changes) -> None:
    raw = json.loads((folder / "config.json").read_text())
    raw.update(changes)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v != "drop"}))


def block_hidden(draft, features, sizes: list[int]) -> torch.Tensor:
    """Append context rows in pieces of `sizes`, a block in between, and run a last block."""
    generator = torch.Generator().manual_seed(7)
    block = torch.randn(1, 4, 32, generator=generator, dtype=features.dtype)
    cache = draft.new_cache(features.shape[1] + 4)
    for size in sizes:
        start = cache.length
        draft.append_context(features[:, start : start + size], cache)
        end = cache.length
        hidden = draft(block, torch.arange(end, end + 4)[None], cache)
    assert cache.length == features.shape[1]
    return hidden


@pytest.mark.parametrize("sizes", [[1] * 11, [3, 1, 2, 2, 1, 2], [5, 3, 3], [10, 1]])
def test_incremental_context_equals_one_shot(sizes, make_draft) -> None:
    draft = make_draft(torch.float64)
    features = torch.randn(1, 11, 96, generator=torch.Generator().manual_seed(3)).double()
    whole = block_hidden(draft, features, [11])
    assert torch.allclose(block_hidden(draft, features, sizes), whole, rtol=1e-12, atol=1e-12)
    swapped = features[:, [1, 0, *range(2, 11)]]
    assert not torch.allclose(block_hidden(draft, swapped, sizes), whole, rtol=1e-3, atol=1e-3)


def test_a_block_leaves_nothing_behind(make_draft) -> None:
    draft = make_draft(torch.float64)
    features = torch.randn(1, 6, 96, generator=torch.Generator().manual_seed(3)).double()
    cache = draft.new_cache(16)
    draft.append_context(features, cache)
    block, longer = torch.randn(2, 1, 8, 32, dtype=torch.float64)
    first = draft(block[:, :3], torch.arange(6, 9)[None], cache)
    draft(longer, torch.arange(6, 14)[None], cache)
    assert cache.length == 6
    assert torch.equal(draft(block[:, :3], torch.arange(6, 9)[None], cache), first)


def test_a_block_sees_itself_in_both_directions_and_its_positions(make_draft) -> None:
    draft = make_draft(torch.float64)
    cache = draft.new_cache(16)
    draft.append_context(torch.randn(1, 6, 96, dtype=torch.float64), cache)
    block = torch.randn(1, 4, 32, dtype=torch.float64)
    positions = torch.arange(6, 10)[None]
    hidden = draft(block, positions, cache)
    changed = block.clone()
    changed[0, 3] += 1
    assert not torch.allclose(draft(changed, positions, cache)[0, 0], hidden[0, 0])
    assert not torch.allclose(draft(block, positions + 1, cache), hidden)


@pytest.mark.parametrize("bias", [False, True])
def test_a_saved_draft_loads_bit_for_bit(bias, make_draft, tmp_path) -> None:
    draft = make_draft(attention_bias=bias)
    save_draft(draft, tmp_path, torch.float32)
    loaded = load_draft(tmp_path)
    assert loaded.config == draft.config
    state = loaded.state_dict()
    assert len(state) == 11 * 2 + 3 + (8 if bias else 0)
    assert all(torch.equal(state[name], value) for name, value in draft.state_dict().items())
    features = torch.randn(1, 5, 96)
    # A loaded draft is fused: other kernels, other last digits.
    hidden = (block_hidden(own, features, [5]) for own in (loaded, draft))
    torch.testing.assert_close(*hidden, rtol=1e-5, atol=1e-5)
    assert not loaded.training
    assert not any(p.requires_grad for p in loaded.parameters())
    assert {p.dtype for p in load_draft(tmp_path, "float64").parameters()} == {torch.float64}


def test_the_default_precision_of_a_checkpoint_is_bfloat16(make_draft, tmp_path) -> None:
    draft = make_draft()
    save_draft(draft, tmp_path)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_draft(tmp_path).state_dict()
    for name, value in draft.state_dict().items():
        assert torch.equal(loaded[name], value.bfloat16().float())


def test_tensor_names_and_config_are_the_public_ones(folder) -> None:
    names = set(load_file(folder / "model.safetensors"))
    layer = {
        *(f"self_attn.{n}.weight" for n in ("q_proj", "k_proj", "v_proj", "o_proj")),
        *(f"self_attn.{n}.weight" for n in ("q_norm", "k_norm")),
        *(f"mlp.{n}.weight" for n in ("gate_proj", "up_proj", "down_proj")),
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    }
    layers = {f"layers.{i}.{n}" for i in range(2) for n in layer}
    assert names == {"fc.weight", "hidden_norm.weight", "norm.weight", *layers}
    raw = json.loads((folder / "config.json").read_text())
    assert raw["architectures"] == ["DFlashDraftModel"]
    assert raw["model_type"] == "qwen3"
    assert raw["block_size"] == 4
    assert raw["dflash_config"] == {"mask_token_id": 96, "target_layer_ids": [0, 2, 3]}


@pytest.mark.parametrize("nested", [(), OWN_KEYS, ("mask_token_id", "target_layer_ids")])
def test_own_keys_are_read_at_top_level_and_nested(nested, folder, draft_config) -> None:
    own = {"block_size": 4, "mask_token_id": 96, "target_layer_ids": [0, 2, 3]}
    values = {k: "drop" if k in nested else v for k, v in own.items()}
    inner = {k: own[k] for k in nested}
    edit_config(folder, **values, dflash_config=inner or "drop")
    assert read_draft_config(folder) == draft_config
    assert load_draft(folder).block_size == 4


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e5}),
        ({"rope_theta": 5e5, "rope_scaling": None}, {"rope_type": "default", "rope_theta": 5e5}),
        ({"rope_theta": 1e4, "rope_scaling": YARN}, {**YARN, "rope_theta": 1e4}),
        (
            {"rope_theta": 1e4, "rope_scaling": {**YARN, "type": "yarn"}},
            {**YARN, "type": "yarn", "rope_theta": 1e4},
        ),
        ({"rope_parameters": {**YARN, "rope_theta": 7e4}}, {**YARN, "rope_theta": 7e4}),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}, "rope_theta": 1.0},
            {"rope_type": "default", "rope_theta": 7e4},  # the newer key wins
        ),
    ],
)
def test_rope_is_read_from_old_and_new_keys(keys, rope, folder) -> None:
    edit_config(folder, **{"rope_parameters": "drop", **keys})
    assert read_draft_config(folder).rope_parameters == rope
    draft = load_draft(folder)
    cos, _ = draft.rope(torch.tensor([[1]]))
    factor = rope.get("factor", 1.0)
    attention_factor = 0.1 * math.log(factor) + 1
    assert cos[0, 0, 0, 0].item() == pytest.approx(attention_factor * math.cos(1.0))
    # The slowest of the four frequencies is interpolated in full.
    slowest = rope["rope_theta"] ** -0.75 / factor
    assert draft.rotary.inv_freq[3].item() == pytest.approx(slowest, rel=1e-5)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop("fc.weight"), r"missing \['fc\.weight'\]"),
        (lambda t: t.update({"conv.weight": torch.ones(2)}), r"unknown \['conv\.weight'\]"),
        (
            lambda t: t.update({"layers.1.self_attn.k_proj.weight": torch.ones(8, 32)}),
            r"'layers\.1\.self_attn\.k_proj\.weight': \(\(8, 32\), \(16, 32\)\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(edit, message, folder) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    with pytest.raises(BlockPilotError, match=message) as error:
        load_draft(folder)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("keep", [0, 4, 300, -1])
def test_a_truncated_weights_file_is_named(keep, folder) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BlockPilotError, match=f"{re.escape(str(path))} is not a whole safetensors"):
        load_draft(folder)


def test_missing_files_are_named(folder) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(BlockPilotError, match=r"model\.safetensors is not a whole safetensors"):
        load_draft(folder)
    (folder / "config.json").write_text('{"hidden_size": 32')
    with pytest.raises(BlockPilotError, match=r"pair\.draft: .*config\.json cannot be read"):
        load_draft(folder)
    (folder / "config.json").unlink()
    with pytest.raises(BlockPilotError, match=r"pair\.draft: .*config\.json cannot be read"):
        load_draft(folder)


def test_missing_keys_are_named(folder) -> None:
    edit_config(folder, hidden_size="drop", dflash_config={"target_layer_ids": [0, 2, 3]})
    match = r"draft/config\.json: missing keys \['hidden_size', 'mask_token_id'\]"
    with pytest.raises(BlockPilotError, match=match):
        load_draft(folder)


def test_sliding_layers_are_refused(folder) -> None:
    edit_config(folder, layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(
        BlockPilotError, match=r"config\.json: layer_types is .*full_attention only"
    ):
        load_draft(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("is_causal", True),
        ("causal", True),
        ("use_swa", True),
        ("input_embedding_scale", 5.5),
        ("output_multiplier", 0.5),
        ("final_logit_softcapping", 30.0),
    ],
)
def test_settings_that_would_change_the_proposals_are_refused(key, value, folder) -> None:
    own = json.loads((folder / "config.json").read_text())["dflash_config"]
    for changes in ({key: value}, {"dflash_config": {**own, key: value}}):
        edit_config(folder, **{key: "drop", **changes})
        with pytest.raises(BlockPilotError, match=rf"config\.json: {key} is {value}; allowed: "):
            load_draft(folder)
    edit_config(folder, **{key: None, "dflash_config": {**own, key: type(value)(0)}})
    if key in ("input_embedding_scale", "output_multiplier"):
        edit_config(folder, dflash_config={**own, key: 1})
    assert load_draft(folder).block_size == 4


def test_head_dim_may_follow_from_the_other_sizes(folder) -> None:
    edit_config(folder, head_dim="drop")
    assert read_draft_config(folder).head_dim == 8


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("vocab_size", 98, "97"),
        ("hidden_size", 64, "32"),
        ("mask_token_id", 97, "0 to 96"),
        ("mask_token_id", -1, "0 to 96"),
        ("target_layer_ids", (0, 4), "one or more layers of 0 to 3"),
        ("target_layer_ids", (-1,), "one or more layers of 0 to 3"),
        ("target_layer_ids", (), "one or more layers of 0 to 3"),
        ("num_target_layers", 5, "4"),
    ],
)
def test_a_draft_of_another_target_is_refused(key, value, allowed, draft_config) -> None:
    target = {"num_hidden_layers": 4, "vocab_size": 97, "hidden_size": 32}
    check_pair(draft_config, target, "folder")
    shown = re.escape(repr(list(value) if isinstance(value, tuple) else value))
    match = rf"pair\.draft folder: {key} is {shown}; allowed: {allowed} with this target"
    with pytest.raises(BlockPilotError, match=match):
        check_pair(replace(draft_config, **{key: value}), target, "folder")


def test_loading_checks_the_pair(folder, make_target) -> None:
    assert load_draft(folder, target=make_target()).config.vocab_size == 97
    with pytest.raises(BlockPilotError, match="vocab_size is 97; allowed: 99 with this target"):
        load_draft(folder, target=make_target(vocab_size=99))


@pytest.mark.parametrize("name", ["float16", "fp16", "half"])
def test_half_precision_is_refused_with_its_reason(name, folder) -> None:
    with pytest.raises(BlockPilotError, match=f"dtype is '{name}'; allowed: .*overflows"):
        load_draft(folder, name)
    with pytest.raises(BlockPilotError, match=r"'int8'; allowed: float32, bfloat16, float64"):
        resolve_dtype("int8")


def test_a_target_loads_from_its_folder(make_target, tmp_path) -> None:
    made = make_target()
    made.model.save_pretrained(tmp_path)
    loaded = load_target(tmp_path, feature_layer_ids=(0, 2, 3))
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded.forward(ids).features, made.forward(ids).features)
    hidden = made.model(ids, output_hidden_states=True).hidden_states
    theirs = torch.cat([hidden[i + 1] for i in (0, 2, 3)], dim=-1)
    torch.testing.assert_close(made.forward(ids).features, theirs, rtol=1e-4, atol=1e-4)
    assert read_target_config(tmp_path)["num_hidden_layers"] == 4


def test_targets_that_cannot_be_used_are_named(make_target, tmp_path) -> None:
    with pytest.raises(BlockPilotError, match=r"pair\.target is .*nowhere'; allowed: an existing"):
        load_target(tmp_path / "nowhere")
    make_target().model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(BlockPilotError, match=rf"pair\.target {re.escape(str(tmp_path))} cannot"):
        load_target(tmp_path)
    edit_config(tmp_path, vocab_size="drop")
    with pytest.raises(BlockPilotError, match=r"config\.json lacks \['vocab_size'\]"):
        read_target_config(tmp_path)


def test_a_config_survives_its_own_layout(draft_config) -> None:
    for dtype in ("float32", "bfloat16"):
        raw = json.loads(json.dumps(draft_config.to_json(dtype)))
        assert DraftConfig.from_json(raw, "here") == draft_config
