"""The selector: a small classifier from the prompt's last position to a block size.

Shapes: n = prompts, F = input features, V = vocabulary, H = hidden size.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.provenance import atomic_path, write_json

FEATURES = ("raw", "softmax", "normalized", "hidden", "summary")
SUMMARY_SIZE = 4  # entropy (nats), top-1 probability, its margin over the second, top-k mass
TOP_K = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectorConfig:
    """Architecture of a selector.

    Attributes:
        features: "raw" logits (the paper's choice), "softmax", "normalized" (per-sample
            standardised logits), "hidden" (the final-norm state) or "summary" (entropy, top-1
            probability, margin and top-10 mass of the softmax).
        input_size: F, as from `feature_size`.
        block_sizes: The classes, ascending.
        width: Hidden units.
        depth: Hidden layers.
        dropout: Probability of zeroing a hidden unit in training.
        fallback_block_size: Size to serve with where the selector should not act.
    """

    features: str
    input_size: int
    block_sizes: tuple[int, ...]
    width: int
    depth: int
    dropout: float
    fallback_block_size: int


def feature_size(features: str, vocab_size: int, hidden_size: int) -> int:
    """Return F, how many numbers `prepare_features` makes of V logits or H hidden values."""
    return {"hidden": hidden_size, "summary": SUMMARY_SIZE}.get(features, vocab_size)


def prepare_features(
    features: str,
    prefill_logits: Tensor,  # [..., V]
    prefill_hidden: Tensor,  # [..., H]
) -> Tensor:  # [..., F]
    """Return the selector's input in float32.

    Raises:
        BlockPilotError: If `features` is unknown.
    """
    if features == "hidden":
        return prefill_hidden.float()
    logits = prefill_logits.float()
    if features == "raw":
        return logits
    if features == "softmax":
        return logits.softmax(-1)
    if features == "summary":
        return _summarise(logits)
    if features == "normalized":
        return (logits - logits.mean(-1, keepdim=True)) / logits.std(-1, keepdim=True)
    raise bad_input("selector.features", features, ", ".join(FEATURES), "Pick one of them.")


def _summarise(logits: Tensor) -> Tensor:  # [..., V] -> [..., 4]
    log_probabilities = logits.log_softmax(-1)
    probabilities = log_probabilities.exp()
    entropy = -(probabilities * log_probabilities).sum(-1)
    top = probabilities.topk(min(TOP_K, logits.shape[-1])).values
    margin = top[..., 0] - top[..., 1]
    return torch.stack([entropy, top[..., 0], margin, top.sum(-1)], dim=-1)


class Selector(nn.Module):
    """Linear -> ReLU -> dropout -> residual hidden layers -> one score per block size."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(config.input_size, config.width)
        self.hidden = nn.ModuleList(
            nn.Linear(config.width, config.width) for _ in range(config.depth - 1)
        )
        self.output = nn.Linear(config.width, len(config.block_sizes))
        self.dropout = nn.Dropout(config.dropout)
        self._initialize()

    def _initialize(self) -> None:
        """Kaiming for the layers behind a ReLU, Xavier for the scores, as the paper's code has."""
        for layer in (self.input, *self.hidden):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores [n, classes] of inputs x [n, F]."""
        x = self.dropout(torch.relu(self.input(x)))
        for layer in self.hidden:
            x = x + self.dropout(torch.relu(layer(x)))
        return self.output(x)

    @torch.inference_mode()
    def choose(self, prefill_logits: Tensor, prefill_hidden: Tensor) -> int:
        """Return the block size for one prompt's p(x) [V] and h(x) [H]."""
        x = prepare_features(self.config.features, prefill_logits, prefill_hidden)
        return self.config.block_sizes[int(self(x[None]).argmax())]

    def save(self, folder: str | Path) -> None:
        """Write `selector.safetensors` and `config.json` into `folder`."""
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        with atomic_path(Path(folder) / "selector.safetensors") as temporary:
            save_file(tensors, temporary)
        write_json(Path(folder) / "config.json", asdict(self.config))

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Selector:
        """Load what `save` wrote.

        Raises:
            BlockPilotError: If a file is missing or damaged.
        """
        try:
            raw = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
            tensors = load_file(Path(folder) / "selector.safetensors", device=device)
            selector = cls(SelectorConfig(**{**raw, "block_sizes": tuple(raw["block_sizes"])}))
            selector.load_state_dict(tensors)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise BlockPilotError(
                f"{folder} is not a whole selector ({error}). Expected config.json and "
                "selector.safetensors; delete the folder and run snakemake again."
            ) from error
        return selector.to(device).eval()
