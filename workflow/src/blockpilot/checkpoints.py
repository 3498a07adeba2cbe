"""What the configuration files of checkpoints say, read without weights and without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from blockpilot.errors import BlockPilotError, bad_input


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftConfig:
    """The fields of a DFlash `config.json` that the network needs."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    max_position_embeddings: int = 32768
    rope_parameters: dict = field(
        default_factory=lambda: {"rope_type": "default", "rope_theta": 1e6}
    )

    @classmethod
    def from_json(cls, raw: dict, where: str) -> DraftConfig:
        """Read a public `config.json`; newer ones keep DFlash's own keys in `dflash_config`.

        Raises:
            BlockPilotError: If a key is missing or its value is not supported.
        """
        own = raw.get("dflash_config") or {}
        flat = {**raw, **own, "rope_parameters": _rope_parameters(raw)}
        flat = {key: value for key, value in flat.items() if value is not None}
        if "sliding_attention" in (raw.get("layer_types") or []):
            raise bad_input(
                f"{where}: layer_types",
                raw["layer_types"],
                "full_attention only",
                "Drafts with sliding-window layers cannot be loaded yet.",
            )
        for key, neutral in _UNSUPPORTED.items():
            if flat.get(key) not in (None, neutral):
                raise bad_input(
                    f"{where}: {key}",
                    flat[key],
                    f"{neutral} or absent",
                    "Drafts that need it cannot be loaded yet.",
                )
        flat.setdefault(
            "head_dim", flat.get("hidden_size", 0) // flat.get("num_attention_heads", 1)
        )
        names = cls.__dataclass_fields__
        required = set(names) - set(_OPTIONAL)
        missing = sorted(required - set(flat))
        if missing:
            raise BlockPilotError(
                f"{where}: missing keys {missing}. A DFlash config.json has them at top level or "
                "inside dflash_config; copy or download the checkpoint again."
            )
        values = {name: flat[name] for name in names if name in flat}
        values["target_layer_ids"] = tuple(values["target_layer_ids"])
        return cls(**values)

    def to_json(self, dtype: str) -> dict:
        """Return the public layout, readable by other implementations too."""
        values = asdict(self)
        own = {key: values.pop(key) for key in ("mask_token_id", "target_layer_ids")}
        return {
            **values,
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "dtype": dtype,
            "dflash_config": {**own, "target_layer_ids": list(self.target_layer_ids)},
        }


_OPTIONAL = ("rms_norm_eps", "attention_bias", "max_position_embeddings", "rope_parameters")


# Keys of other drafts that change every proposal: ignoring one would silently cost acceptance.
_UNSUPPORTED = {
    "is_causal": False,
    "causal": False,
    "use_swa": False,
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "final_logit_softcapping": 0.0,
}


def _rope_parameters(raw: dict) -> dict:
    """Return rope parameters from the newer key or from the older pair of keys."""
    if raw.get("rope_parameters"):
        return dict(raw["rope_parameters"])
    scaling = dict(raw.get("rope_scaling") or {"rope_type": "default"})
    return {**scaling, "rope_theta": raw.get("rope_theta") or 1e6}


def read_draft_config(path: str | Path) -> DraftConfig:
    """Read `config.json` of a draft folder.

    Raises:
        BlockPilotError: If the file is missing or not a DFlash configuration.
    """
    where = Path(path) / "config.json"
    return DraftConfig.from_json(_read_json(where, "pair.draft", "a DFlash draft"), str(where))


def check_pair(draft: DraftConfig, target: dict, where: str) -> None:
    """Raise BlockPilotError unless a draft fits a target's configuration (a dictionary)."""
    layers, vocab_size = target["num_hidden_layers"], target["vocab_size"]
    ids = draft.target_layer_ids
    checks = (
        ("vocab_size", draft.vocab_size, draft.vocab_size == vocab_size, f"{vocab_size}"),
        (
            "hidden_size",
            draft.hidden_size,
            draft.hidden_size == target["hidden_size"],
            f"{target['hidden_size']}",
        ),
        (
            "mask_token_id",
            draft.mask_token_id,
            0 <= draft.mask_token_id < vocab_size,
            f"0 to {vocab_size - 1}",
        ),
        (
            "target_layer_ids",
            list(ids),
            bool(ids) and all(0 <= i < layers for i in ids),
            f"one or more layers of 0 to {layers - 1}",
        ),
        (
            "num_target_layers",
            draft.num_target_layers,
            draft.num_target_layers == layers,
            f"{layers}",
        ),
    )
    for key, value, fits, allowed in checks:
        if not fits:
            raise bad_input(
                f"pair.draft {where}: {key}",
                value,
                f"{allowed} with this target",
                "Use the draft that was trained for this target.",
            )


def check_request(
    prompt_ids: Sequence[int], max_new_tokens: int, context_tokens: int, where: str = "prompt"
) -> None:
    """Raise BlockPilotError unless prompt and answer fit the target's context."""
    if not len(prompt_ids):
        raise bad_input(
            f"{where}: tokens", 0, "at least 1", "An empty prompt has no last position."
        )
    if max_new_tokens < 1:
        raise bad_input("max_new_tokens", max_new_tokens, "an integer >= 1", "Prefill emits one.")
    if len(prompt_ids) + max_new_tokens > context_tokens:
        raise bad_input(
            f"{where}: prompt tokens + max_new_tokens",
            f"{len(prompt_ids)} + {max_new_tokens}",
            f"at most {context_tokens}, the target's context",
            "Shorten the prompt or lower decode.max_new_tokens.",
        )


def check_answer_length(key: str, max_new_tokens: int, target: dict) -> None:
    """Raise BlockPilotError if answers leave no room for a prompt in the target's context."""
    context = target.get("max_position_embeddings")
    if context and max_new_tokens >= context:
        allowed = f"1 to {context - 1}, within the target's context of {context}"
        raise bad_input(key, max_new_tokens, allowed, "Lower it.")


def read_target_config(path: str | Path) -> dict:
    """Read `config.json` of a local target folder.

    Raises:
        BlockPilotError: If it is missing, not JSON or lacks the keys of a causal LM.
    """
    raw = _read_json(Path(path) / "config.json", "pair.target", "a transformers causal LM")
    missing = [k for k in ("num_hidden_layers", "vocab_size", "hidden_size") if k not in raw]
    if missing:
        raise BlockPilotError(
            f"pair.target: {path}/config.json lacks {missing}; allowed: the config.json of a "
            "transformers causal LM. Copy or download the folder again."
        )
    return raw


def _read_json(where: Path, key: str, kind: str) -> dict:
    try:
        return json.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BlockPilotError(
            f"{key}: {where} cannot be read ({error}). Expected a folder with the config.json and "
            f"safetensors of {kind}; check the path or copy the folder again."
        ) from error
