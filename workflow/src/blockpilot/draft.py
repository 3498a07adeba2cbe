"""The DFlash block drafter, in the public checkpoint layout (reference: DFlash model cards).

A block is [anchor, mask, ..., mask]; every mask slot predicts the token at its own position.
The draft has no embedding and no head: both are the target's.

Shapes: n = batch rows, b = block size, m = new context rows, C = cached context rows,
q = query rows, H = hidden size, k = feature layers, A/G = attention/key-value heads, d = head size.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from blockpilot.checkpoints import DraftConfig, check_pair, read_draft_config
from blockpilot.errors import BlockPilotError
from blockpilot.fused import FusedContext, FusedLayer, Product, RotaryTable, rms_norm
from blockpilot.provenance import atomic_path, write_json
from blockpilot.target import Target, resolve_dtype


class RMSNorm(nn.Module):
    """Root-mean-square norm; half precision is normalised in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary position embedding (half-split layout) to x [n, heads, q, d]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class ContextCache:
    """The context's keys and values per layer; a block is written behind them and never kept."""

    def __init__(self, config: DraftConfig, capacity: int, like: Tensor, rows: int = 1) -> None:
        heads, layers = config.num_key_value_heads, config.num_hidden_layers
        self.all_keys = like.new_empty(layers, rows, heads, capacity, config.head_dim)
        self.all_values = torch.empty_like(self.all_keys)
        self.keys, self.values = self.all_keys.unbind(0), self.all_values.unbind(0)
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append context rows [L, n, G, m, d] of all layers."""
        end = self.length + keys.shape[3]
        self.all_keys[:, :, :, self.length : end] = keys
        self.all_values[:, :, :, self.length : end] = values
        self.length = end

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what a block gathers from the context and itself, [n, A, b, d].

        The block's rows lie behind the context only until the next context rows overwrite them.
        """
        end = self.length + keys.shape[2]
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return functional.scaled_dot_product_attention(
            queries, self.keys[layer][:, :, :end], self.values[layer][:, :, :end], enable_gqa=True
        )


class DraftLayer(nn.Module):
    """A pre-norm layer whose keys and values come from the context features and the block."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        size, d = config.hidden_size, config.head_dim
        wide, narrow = config.num_attention_heads * d, config.num_key_value_heads * d
        bias, eps = config.attention_bias, config.rms_norm_eps
        self.head_dim = d
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(size, wide, bias=bias),
                "k_proj": nn.Linear(size, narrow, bias=bias),
                "v_proj": nn.Linear(size, narrow, bias=bias),
                "o_proj": nn.Linear(wide, size, bias=bias),
                "q_norm": RMSNorm(d, eps),
                "k_norm": RMSNorm(d, eps),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(size, config.intermediate_size, bias=False),
                "up_proj": nn.Linear(size, config.intermediate_size, bias=False),
                "down_proj": nn.Linear(config.intermediate_size, size, bias=False),
            }
        )
        self.input_layernorm = RMSNorm(size, eps)
        self.post_attention_layernorm = RMSNorm(size, eps)

    def _heads(self, x: Tensor) -> Tensor:
        """Split [n, q, heads*d] into [n, q, heads, d]."""
        return x.unflatten(-1, (-1, self.head_dim))

    def keys_values(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return rotated keys and values [n, G, q, d] of context or block rows x [n, q, H]."""
        attention = self.self_attn
        keys = attention["k_norm"](self._heads(attention["k_proj"](x))).transpose(1, 2)
        values = self._heads(attention["v_proj"](x)).transpose(1, 2)
        return rotate(keys, *rope), values

    def forward(
        self,
        hidden: Tensor,  # [n, q, H]
        rope: tuple[Tensor, Tensor],  # cos, sin [n, 1, q, d] of the block rows
        context,  # anything with `attend(layer, queries, keys, values)`
        layer: int,
    ) -> Tensor:
        """Return the layer's output [n, q, H]."""
        attention = self.self_attn
        x = self.input_layernorm(hidden)
        queries = attention["q_norm"](self._heads(attention["q_proj"](x))).transpose(1, 2)
        mixed = context.attend(layer, rotate(queries, *rope), *self.keys_values(x, rope))
        hidden = hidden + attention["o_proj"](mixed.transpose(1, 2).flatten(2))
        x = self.post_attention_layernorm(hidden)
        gated = functional.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x)
        return hidden + self.mlp["down_proj"](gated)


class DFlashDraft(nn.Module):
    """The draft network; parameter names are those of public checkpoints."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        from transformers import Qwen3Config
        from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

        self.config = config
        self._fused: list[FusedLayer] = []  # filled by `fuse`
        size = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * size, size, bias=False)
        self.hidden_norm = RMSNorm(size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(size, config.rms_norm_eps)
        # Every rope flavour of transformers works here without code of ours.
        self.rotary = Qwen3RotaryEmbedding(
            Qwen3Config(
                hidden_size=size,
                num_attention_heads=config.num_attention_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_position_embeddings,
                rope_parameters=dict(config.rope_parameters),
            )
        )

    @property
    def block_size(self) -> int:
        """Return the block size the draft was trained with."""
        return self.config.block_size

    def fuse(self) -> DFlashDraft:
        """Prepare for inference: the same results with fewer operations.

        From here on the parameters must not be replaced, moved or cast.
        """
        d, eps = self.config.head_dim, self.config.rms_norm_eps
        self._fused = [FusedLayer(layer, d, eps) for layer in self.layers]
        self._context = FusedContext(self.layers, d, eps)
        self._features = Product([self.fc])
        self._table = RotaryTable(self.rotary, self.norm.weight)
        return self

    def cast(self, dtype: torch.dtype) -> DFlashDraft:
        """Convert the parameters alone: rope frequencies in half precision would be wrong."""
        for parameter in self.parameters():
            parameter.data = parameter.data.to(dtype)
        return self

    def rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [n, 1, q, d] for positions [n, q]."""
        cos, sin = self.rotary(self.norm.weight, positions)
        return cos[:, None], sin[:, None]

    def new_cache(self, capacity: int, rows: int = 1) -> ContextCache:
        """Return an empty context cache for `capacity` positions, the block included."""
        return ContextCache(self.config, capacity, self.norm.weight, rows)

    def context_keys_values(
        self,
        features: Tensor,  # [n, m, k*H]
        positions: Tensor,  # [n, m]
    ) -> list[tuple[Tensor, Tensor]]:
        """Return each layer's keys and values [n, G, m, d] of context rows."""
        if self._fused:
            keys, values = self._fused_context(features, self._table.at(positions))
            return list(zip(keys, values, strict=True))
        context = self.hidden_norm(self.fc(features))
        rope = self.rope(positions)
        return [layer.keys_values(context, rope) for layer in self.layers]

    def append_context(self, features: Tensor, cache: ContextCache) -> None:
        """Append features [1, m, k*H] of the next m committed positions to the cache."""
        start, count = cache.length, features.shape[1]
        if self._fused:
            keys, values = self._fused_context(features, self._table.rows(start, count))
        else:
            positions = torch.arange(start, start + count, device=features.device)[None]
            pairs = self.context_keys_values(features, positions)
            keys, values = (torch.stack(part) for part in zip(*pairs, strict=True))
        cache.append(keys, values)

    def forward(
        self,
        embeddings: Tensor,  # [n, q, H] the target's embeddings of anchors and masks
        positions: Tensor | range,  # [n, q]; a range for consecutive ones of a single row
        context,  # a ContextCache, or a `packed` context under its blocks
    ) -> Tensor:
        """Return the hidden states [n, q, H] that the target's head turns into logits."""
        if self._fused:
            return self._run_fused(embeddings, positions, context)
        if isinstance(positions, range):
            positions = torch.tensor([[*positions]], device=embeddings.device)
        rope = self.rope(positions)
        hidden = embeddings
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, rope, context, index)
        return self.norm(hidden)

    def _fused_context(self, features: Tensor, rope: tuple[Tensor, Tensor]) -> tuple:
        eps = self.config.rms_norm_eps
        context = rms_norm(self._features(features), self.hidden_norm.weight, eps)
        return self._context(context, rope)

    def _run_fused(self, hidden: Tensor, positions: Tensor | range, context) -> Tensor:
        table = self._table
        if isinstance(positions, range):
            rope = table.rows(positions.start, len(positions))
        else:
            rope = table.at(positions)
        for index, layer in enumerate(self._fused):
            hidden = layer(hidden, rope, partial(context.attend, index))
        return rms_norm(hidden, self.norm.weight, self.config.rms_norm_eps)


def load_draft(
    path: str | Path, dtype: str = "float32", device: str = "cpu", target: Target | None = None
) -> DFlashDraft:
    """Load a DFlash draft from a folder with `config.json` and `model.safetensors`.

    Args:
        path: Folder in the public layout.
        dtype: float32, bfloat16 or float64.
        device: A torch device.
        target: If given, the pair is checked to fit.

    Raises:
        BlockPilotError: If files, keys or tensors are missing, damaged or do not fit.
    """
    config = read_draft_config(path)
    weights = Path(path) / "model.safetensors"
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise BlockPilotError(
            f"{weights} is not a whole safetensors file ({error}). "
            "Copy or download the checkpoint again."
        ) from error
    draft = DFlashDraft(config)
    expected = {name: tuple(value.shape) for name, value in draft.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if expected != found:
        raise _tensor_mismatch(weights, expected, found)
    draft.load_state_dict(tensors)
    draft.cast(resolve_dtype(dtype)).to(device).eval().requires_grad_(False)
    if target is not None:
        check_pair(draft.config, target.config.to_dict(), str(path))
    return draft.fuse()


def _tensor_mismatch(path: Path, expected: dict, found: dict) -> BlockPilotError:
    wrong = {n: (found[n], expected[n]) for n in expected.keys() & found if found[n] != expected[n]}
    return BlockPilotError(
        f"{path}: tensors do not fit config.json: missing {sorted(expected.keys() - found.keys())},"
        f" unknown {sorted(found.keys() - expected.keys())}, wrong shape (found, expected) {wrong}."
        " Use the config.json that came with these weights."
    )


def save_draft(draft: DFlashDraft, path: str | Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a draft in the public layout: config.json and model.safetensors."""
    path = Path(path)
    tensors = {n: v.detach().to(dtype).contiguous() for n, v in draft.state_dict().items()}
    with atomic_path(path / "model.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
    write_json(path / "config.json", draft.config.to_json(str(dtype).removeprefix("torch.")))
