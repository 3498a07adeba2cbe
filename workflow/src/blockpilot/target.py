"""The verifying language model: a thin face over a transformers causal LM.

Everything that depends on transformers' version (caches, masks, hidden states) is in this file.

Shapes: n = batch rows, q = query tokens, H = hidden size, V = vocabulary, k = feature layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.fused import FusedTarget, Head, can_fuse, join_features

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def resolve_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a configured name.

    Raises:
        BlockPilotError: For float16, with its reason, and for unknown names.
    """
    if name in ("float16", "fp16", "half"):
        raise bad_input(
            "decode.dtype",
            name,
            ", ".join(DTYPES),
            "float16 overflows on the hidden features of Qwen3 targets and acceptance falls to "
            "almost 0; use bfloat16 or float32.",
        )
    if name not in DTYPES:
        raise bad_input("decode.dtype", name, ", ".join(DTYPES), "Pick one of them.")
    return DTYPES[name]


class _Layer(CacheLayerMixin):
    """Keys and values of one layer in buffers that are allocated once and never copied."""

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        n, heads, _, d = key_states.shape
        self.keys = key_states.new_empty(n, heads, self.capacity, d)
        self.values = value_states.new_empty(n, heads, self.capacity, value_states.shape[-1])
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class TargetCache(Cache):
    """A key/value cache with room for `capacity` tokens per row."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[_Layer(capacity) for _ in range(num_layers)])

    @property
    def length(self) -> int:
        """Return the number of cached positions."""
        return self.layers[0].length

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on; nothing is copied."""
        for layer in self.layers:
            layer.length = length

    def keep_rows(self, rows: Tensor) -> None:
        """Keep only the given batch rows (requests that are still running)."""
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]


class TargetOutput(NamedTuple):
    """What a forward pass returns; features are empty when none were asked for."""

    hidden: Tensor  # [n, q, H] after the final norm
    features: Tensor  # [n, q, k*H] the draft's context features


class Target:
    """A causal language model that verifies blocks and hands out features of chosen layers."""

    def __init__(self, model: PreTrainedModel, feature_layer_ids: Sequence[int] = ()) -> None:
        self.model = model.eval().requires_grad_(False)
        self.config = model.config
        self.device = model.device
        self.dtype = model.dtype
        self.head = Head(model.get_output_embeddings())
        self.embeddings: Tensor = model.get_input_embeddings().weight
        self.feature_layer_ids = tuple(feature_layer_ids)
        self._captured: dict[int, Tensor] = {}
        self._base = model.base_model
        self._fused = FusedTarget(self._base) if can_fuse(model) else None
        if self._fused is None:
            self._watch_layers()

    @property
    def vocab_size(self) -> int:
        """Return the number of rows of the vocabulary head."""
        return self.head.weight.shape[0]

    @property
    def context_tokens(self) -> int:
        """Return the longest sequence the model was configured for."""
        return self.config.max_position_embeddings

    def _watch_layers(self) -> None:
        """Record the outputs of the feature layers as they pass by.

        The last layer's output is taken after the final norm, where transformers' own
        `hidden_states` takes it.
        """
        last = self.config.num_hidden_layers - 1
        for layer_id in self.feature_layer_ids:
            module = self._base.norm if layer_id == last else self._base.layers[layer_id]

            def record(_module, _inputs, output, layer_id=layer_id) -> None:
                self._captured[layer_id] = output[0] if isinstance(output, tuple) else output

            module.register_forward_hook(record)

    def new_cache(self, capacity: int) -> TargetCache:
        """Return an empty cache for `capacity` tokens per row."""
        return TargetCache(self.config.num_hidden_layers, capacity)

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,  # [n, q]
        cache: TargetCache | None = None,
        position_ids: Tensor | None = None,  # [n, q], needed with padding
        visible: Tensor | None = None,  # [n, 1, q, cached + q] bool, needed with padding
        want_features: bool = True,
    ) -> TargetOutput:
        """Run the layers over new tokens, appending to `cache`; the head is left to the caller."""
        wanted = self.feature_layer_ids if want_features else ()
        start = cache.length if cache is not None else 0
        if visible is None and start and input_ids.shape[1] > 1:
            visible = causal_visible(start, input_ids.shape[1], self.device)
        if self._fused is not None:
            return TargetOutput(
                *self._fused.forward(input_ids, cache, position_ids, visible, wanted)
            )
        if visible is not None and self.config._attn_implementation == "eager":
            # Eager attention adds its mask to the scores, where True would count as 1.
            lowest = torch.finfo(self.dtype).min
            visible = torch.zeros_like(visible, dtype=self.dtype).masked_fill(~visible, lowest)
        if position_ids is None:
            position_ids = torch.arange(start, start + input_ids.shape[1], device=self.device)[None]
        output = self._base(
            input_ids=input_ids,
            attention_mask=visible,
            position_ids=position_ids,
            cache=cache,
            use_cache=cache is not None,
        )
        hidden = output.last_hidden_state
        features = join_features([self._captured[i] for i in wanted], hidden)
        self._captured.clear()
        return TargetOutput(hidden, features)


def causal_visible(start: int, count: int, device: torch.device) -> Tensor:
    """Return the mask [1, 1, q, start + q] of `count` new tokens behind `start` cached ones."""
    mask = torch.ones(count, start + count, dtype=torch.bool, device=device)
    return mask.tril(diagonal=start)[None, None]


def load_target(
    path: str | Path,
    dtype: str = "float32",
    device: str = "cpu",
    feature_layer_ids: Sequence[int] = (),
    revision: str | None = None,
    attn_implementation: str = "sdpa",
) -> Target:
    """Load a causal LM from a local folder or, with a pinned revision, from the Hub.

    Args:
        path: Folder or Hub name.
        dtype: float32, bfloat16 or float64; float16 is refused.
        device: A torch device.
        feature_layer_ids: Layers whose outputs the draft reads (`draft.config.target_layer_ids`).
        revision: Commit to pin a Hub download to.
        attn_implementation: As in transformers.

    Raises:
        BlockPilotError: If the files are missing, damaged or not a causal LM.
    """
    where = Path(path)
    if not where.exists() and revision is None:
        raise bad_input(
            "pair.target",
            str(path),
            "an existing folder, or a Hub name with pair.target_revision",
            "Check the path, or pin a revision.",
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(path),
            dtype=resolve_dtype(dtype),
            revision=revision,
            attn_implementation=attn_implementation,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise BlockPilotError(
            f"pair.target {path} cannot be loaded: {error}. Expected config.json and whole "
            "safetensors of a causal language model; copy or download the folder again."
        ) from error
    return Target(model.to(device), feature_layer_ids)
