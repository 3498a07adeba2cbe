"""Loads a target and its draft as the configuration describes them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from blockpilot.checkpoints import read_draft_config
from blockpilot.draft import DFlashDraft, load_draft
from blockpilot.prompts import load_tokenizer
from blockpilot.target import Target, load_target


class Pair(NamedTuple):
    """A target, the draft that fits it, and the tokens that end a request."""

    target: Target
    draft: DFlashDraft | None
    stop_ids: frozenset[int]


def load_pair(pair: dict, dtype: str, device: dict, with_draft: bool = True) -> Pair:
    """Load the models of a run and set torch's threads.

    Args:
        pair: The configuration group `pair`.
        dtype: `decode.dtype`.
        device: The configuration group `device`.
        with_draft: False loads the target alone and watches no features.

    Raises:
        BlockPilotError: If files are missing or damaged, or the two do not fit.
    """
    torch.set_num_threads(device["threads"])
    layers = read_draft_config(pair["draft"]).target_layer_ids if with_draft else ()
    target = load_target(
        pair["target"],
        dtype,
        device["torch"],
        layers,
        pair["target_revision"],
        pair["attn_implementation"],
    )
    draft = load_draft(pair["draft"], dtype, device["torch"], target) if with_draft else None
    tokenizer = load_tokenizer(pair["target"], pair["target_revision"])
    return Pair(target, draft, stop_tokens(target, tokenizer.eos_token_id))


def stop_tokens(target: Target, eos_token_id: int | None) -> frozenset[int]:
    """Return the stop tokens of the generation config (one or several) and the tokenizer."""
    configured = target.model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(int(i) for i in (*several, eos_token_id) if i is not None)
