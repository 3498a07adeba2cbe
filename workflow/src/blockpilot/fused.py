"""Decoder layers of Qwen3 and Llama shape with as few operations as they need.

At batch size 1 a small kernel costs less than launching it, so one matrix product replaces three,
one norm replaces two, and rotations are looked up. Weights are not copied, the parameters that
they come from become views of the fused ones; but on CPUs small ones are, in an order that oneDNN
reads twice as fast.

Shapes: n = batch rows, q = query tokens, H = hidden size, A/G = attention/key-value heads,
d = head size, L = layers, m = context rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.cache_utils import Cache, CacheLayerMixin

# Called with queries [n, A, q, d], keys and values [n, G, q, d]; returns what queries gather.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
# Architectures whose layers are those of this module; all others run as transformers wrote them.
FUSED_TYPES = ("qwen3", "llama")
# Where frequencies do not depend on the length of the sequence.
STATIC_ROPE = ("default", "linear", "llama3", "yarn")
PACK_BYTES = 8_000_000  # of a weight; larger ones are not worth a second copy
# oneDNN compiles and keeps a kernel per number of rows: blocks have few, packs and prompts many.
PACKED_ROWS = 32


class Product:
    """Several linear maps of one input, computed as one."""

    def __init__(self, modules: Sequence[nn.Linear]) -> None:
        self.weight, self.bias = fuse_rows(modules)
        self.packed = _pack(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the maps' outputs side by side."""
        if self.packed is None or x.numel() > PACKED_ROWS * x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class Head(nn.Module):
    """The vocabulary head; gradients pass through it to what it reads."""

    def __init__(self, module: nn.Linear) -> None:
        super().__init__()
        self.module = module
        self.product = Product([module])

    @property
    def weight(self) -> Tensor:
        """Return the head's weight [V, H]."""
        return self.module.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V]."""
        return self.module(hidden) if hidden.requires_grad else self.product(hidden)


def _pack(weight: Tensor) -> Tensor | None:
    """Return oneDNN's copy of a weight, where that is faster and the weight is small."""
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not fits or weight.nbytes > PACK_BYTES:
        return None
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight)


def fuse_rows(modules: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Return the weight and bias that compute several linear maps of one input at once.

    The modules keep working: their parameters become views of what is returned.
    """
    if len(modules) == 1:
        return modules[0].weight.data, None if modules[0].bias is None else modules[0].bias.data
    weight = torch.cat([module.weight.data for module in modules])
    bias = None
    if modules[0].bias is not None:
        bias = torch.cat([module.bias.data for module in modules])
    start = 0
    for module in modules:
        end = start + module.out_features
        module.weight.data = weight[start:end]
        if bias is not None:
            module.bias.data = bias[start:end]
        start = end
    return weight, bias


class RotaryTable:
    """Cosines and signed sines of all positions so far, computed once by a rotary module.

    Rotating x is x * cos + roll(x) * sin: the sign of the rolled half is in the sines.
    """

    def __init__(self, rotary: nn.Module, like: Tensor) -> None:
        self.rotary, self.like = rotary, like
        self.cos = self.sin = like.new_empty(0, 0)

    def reserve(self, count: int) -> None:
        """Make room for positions 0 to count - 1."""
        if len(self.cos) >= count:
            return
        positions = torch.arange(max(count, 2 * len(self.cos)), device=self.like.device)
        cos, sin = self.rotary(self.like, positions[None])
        half = sin.shape[-1] // 2
        self.cos = cos[0]
        self.sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)

    def rows(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [count, 1, d] of consecutive positions."""
        self.reserve(start + count)
        return self.cos[start : start + count, None], self.sin[start : start + count, None]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [n, q, 1, d] at any positions [n, q]; waits for the device."""
        self.reserve(int(positions.max()) + 1)
        return self.cos[positions][..., None, :], self.sin[positions][..., None, :]


def rotate_heads(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [..., q, heads, d] by cos and signed sin [..., q, 1, d]."""
    cos, sin = rope
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Return the root-mean-square norm over the last dimension."""
    if x.is_cuda or x.dtype in (torch.bfloat16, torch.float16):
        normed = functional.rms_norm(x, (x.shape[-1],), None, eps)
        return normed if weight is None else normed * weight
    # On CPUs torch's own takes twice as long: it is no fused kernel there.
    squares = x.square().sum(-1, keepdim=True)
    scale = squares.mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    return x * scale if weight is None else (x * scale).mul_(weight)


class FusedLayer:
    """One pre-norm layer: attention and a gated feed-forward network."""

    def __init__(self, layer: nn.Module, head_dim: int, eps: float) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim, self.eps = head_dim, eps
        self.qkv = Product([attention.q_proj, attention.k_proj, attention.v_proj])
        self.queries = attention.q_proj.out_features // head_dim
        self.keys = attention.k_proj.out_features // head_dim
        self.qk_norm = _stack_norms(attention, self.queries, self.keys)
        self.out = Product([attention.o_proj])
        self.gate_up, self.down = Product([mlp.gate_proj, mlp.up_proj]), Product([mlp.down_proj])
        self.before_attention = layer.input_layernorm.weight
        self.before_mlp = layer.post_attention_layernorm.weight

    def __call__(self, hidden: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """Return the layer's output [n, q, H]."""
        x = rms_norm(hidden, self.before_attention, self.eps)
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        rotated, values = heads.split([self.queries + self.keys, self.keys], dim=2)
        if self.qk_norm is not None:
            rotated = rms_norm(rotated, self.qk_norm, self.eps)
        rotated = rotate_heads(rotated, rope).transpose(1, 2)
        queries, keys = rotated.split([self.queries, self.keys], dim=1)
        mixed = attend(queries, keys, values.transpose(1, 2))
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        x = rms_norm(hidden, self.before_mlp, self.eps)
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return hidden + self.down(functional.silu(gate) * up)


class FusedContext:
    """Keys and values of all layers from one context, as a DFlash draft needs them."""

    def __init__(self, layers: Sequence[nn.Module], head_dim: int, eps: float) -> None:
        names = ("k_proj", "v_proj")
        maps = [getattr(layer.self_attn, name) for layer in layers for name in names]
        # Of copies, a fraction of the draft: the layers' own are views of other weights.
        self.maps = Product([deepcopy(module) for module in maps])
        self.shape = (len(layers), 2, maps[0].out_features // head_dim, head_dim)
        norms = [layer.self_attn.k_norm.weight.data for layer in layers]
        self.norm, self.eps = torch.stack(norms)[:, None], eps  # [L, 1, d]

    def __call__(
        self, context: Tensor, rope: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:  # context [n, m, H], rope [..., m, 1, d]
        """Return keys and values [L, n, G, m, d]."""
        pairs = self.maps(context).unflatten(-1, self.shape)
        keys, values = pairs.unbind(3)  # [n, m, L, G, d]
        keys = rms_norm(keys, self.norm, self.eps)
        cos, sin = (part[..., None, :] for part in rope)
        keys = rotate_heads(keys, (cos, sin))
        return keys.permute(2, 0, 3, 1, 4), values.permute(2, 0, 3, 1, 4)


def _stack_norms(attention: nn.Module, queries: int, keys: int) -> Tensor | None:
    """Return the norms' weights of query and key heads [A + G, d]; None for Llama."""
    if not hasattr(attention, "q_norm"):
        return None
    norms = (attention.q_norm.weight, queries), (attention.k_norm.weight, keys)
    return torch.cat([weight.data.expand(count, -1) for weight, count in norms])


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores: 0, or -inf where False. Made once for all layers."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, float("-inf"))


def join_features(features: Sequence[Tensor], hidden: Tensor) -> Tensor:
    """Return the features of some layers side by side [n, q, k*H]; [n, q, 0] without any."""
    return torch.cat(list(features), dim=-1) if features else hidden[..., :0]


def can_fuse(model: nn.Module) -> bool:
    """Return whether `fused` computes what this model's own forward pass does."""
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    layers = getattr(config, "layer_types", None) or []
    return (
        config.model_type in FUSED_TYPES
        and config.hidden_act == "silu"
        and config._attn_implementation == "sdpa"
        and rope in STATIC_ROPE
        and set(layers) <= {"full_attention"}
        and len(getattr(model, "hf_device_map", {})) <= 1
    )


class FusedTarget:
    """The decoder of a Qwen3 or Llama model, run without transformers' own modules."""

    def __init__(self, base: nn.Module) -> None:
        config = base.config
        head_dim = base.layers[0].self_attn.head_dim
        self.eps = config.rms_norm_eps
        self.layers = [FusedLayer(layer, head_dim, self.eps) for layer in base.layers]
        self.embeddings, self.norm = base.embed_tokens.weight, base.norm.weight
        self.table = RotaryTable(base.rotary_emb, self.norm)

    def forward(
        self,
        input_ids: Tensor,
        cache: Cache | None,
        position_ids: Tensor | None,
        visible: Tensor | None,
        wanted: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """Return the hidden states [n, q, H] after the final norm and the wanted layers' features.

        Arguments are those of `Target.forward`; `wanted` are the feature layers.
        """
        start, count = cache.length if cache is not None else 0, input_ids.shape[1]
        if position_ids is None:
            rope = self.table.rows(start, count)
        else:
            rope = self.table.at(position_ids)
        # Behind cached tokens the caller says what is visible.
        is_causal = visible is None and count > 1
        mask = None if visible is None else additive_mask(visible, self.norm.dtype)
        hidden = functional.embedding(input_ids, self.embeddings)
        features: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            attend = _Attention(cache.layers[index] if cache else None, mask, is_causal)
            hidden = layer(hidden, rope, attend)
            if index in wanted:
                features[index] = hidden
        hidden = rms_norm(hidden, self.norm, self.eps)
        # The last layer's output is taken after the final norm, as transformers does.
        features |= {index: hidden for index in wanted if index == len(self.layers) - 1}
        return hidden, join_features([features[i] for i in wanted], hidden)


class _Attention(NamedTuple):
    """Attention over a layer's cache and the new tokens, which are appended to it."""

    layer: CacheLayerMixin | None
    mask: Tensor | None
    is_causal: bool

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.layer is not None:
            keys, values = self.layer.update(keys, values)
        return functional.scaled_dot_product_attention(
            queries, keys, values, self.mask, is_causal=self.is_causal, enable_gqa=True
        )
