"""Trains a DFlash draft for any target: sampled anchors, strict context, bidirectional blocks.

Shapes: n = conversations, S = padded tokens, N = anchors per conversation, b = block size,
q = N * b block rows, H = hidden size, k = feature layers, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from blockpilot.draft import DFlashDraft, DraftConfig
from blockpilot.packed import Blocks, PackedContext
from blockpilot.rounds import tau
from blockpilot.target import Target
from blockpilot.training.examples import Example, collate, plan_batches
from blockpilot.training.loop import LoopSettings, LoopState, run_loop


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftTraining:
    """What one training step looks like.

    Attributes:
        anchors_per_example: Blocks sampled per conversation and step.
        batch_tokens: Padded tokens of conversations per step.
        decay: Slots of position k weigh exp(-(k-1)/decay): early misses cost the whole block.
        seed: Of initialisation, batches and anchors.
    """

    anchors_per_example: int = 32
    batch_tokens: int = 4096
    decay: float = 4.0
    seed: int = 1


def sample_anchors(
    is_response: Tensor,  # [n, S] bool
    count: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Draw anchors without replacement among response tokens that have a response successor.

    Returns:
        (anchors [n, count] sorted, is_real [n, count]); rows with too few repeat position 0.
    """
    eligible = torch.zeros_like(is_response)
    eligible[:, :-1] = is_response[:, :-1] & is_response[:, 1:]
    scores = torch.rand(is_response.shape, generator=generator).masked_fill(~eligible, -1)
    best, anchors = scores.topk(min(count, scores.shape[1]), dim=1)
    anchors, order = anchors.masked_fill(best < 0, 0).sort(dim=1)
    return anchors, (best >= 0).gather(1, order)


def block_logits(
    draft: DFlashDraft,
    target: Target,
    ids: Tensor,  # [n, S]
    features: Tensor,  # [n, S, k*H]
    anchors: Tensor,  # [n, N]
    block_size: int,
) -> Tensor:  # [n, N, b-1, V]
    """Return the logits of every mask slot of the blocks that start at `anchors`.

    A block sees the context strictly before its anchor and itself, as in the decode loop.
    """
    n, count = anchors.shape
    length = ids.shape[1]
    blocks = Blocks(
        document=torch.arange(n, device=ids.device).repeat_interleave(count),
        anchor=anchors.flatten(),
        size=torch.full((n * count,), block_size, device=ids.device),
    )
    tokens = torch.full((n * count, block_size), draft.config.mask_token_id, device=ids.device)
    tokens[:, 0] = ids.gather(1, anchors).flatten()
    embeddings = functional.embedding(tokens.flatten(), target.embeddings)
    positions = (blocks.anchor[:, None] + torch.arange(block_size, device=ids.device)).flatten()
    everywhere = torch.arange(length, device=ids.device).repeat(n)
    pairs = draft.context_keys_values(features.flatten(0, 1)[None], everywhere[None])
    offsets = torch.arange(n + 1, device=ids.device) * length
    context = PackedContext(pairs, offsets).under(blocks)
    hidden = draft(embeddings[None], positions[None], context)[0]
    return target.head(hidden.view(n, count, block_size, -1)[:, :, 1:])


def block_labels(
    ids: Tensor,  # [n, S]
    is_response: Tensor,  # [n, S] bool
    anchors: Tensor,  # [n, N]
    block_size: int,
) -> tuple[Tensor, Tensor]:
    """Return (labels [n, N, b-1], is_label [n, N, b-1]): the response tokens behind each anchor.

    A label counts while every token up to it belongs to the same response.
    """
    n, count = anchors.shape
    wanted = anchors[..., None] + torch.arange(1, block_size, device=ids.device)
    inside = wanted < ids.shape[1]
    flat = wanted.clamp(max=ids.shape[1] - 1).flatten(1)
    labels = ids.gather(1, flat).view(n, count, block_size - 1)
    said = is_response.gather(1, flat).view(n, count, block_size - 1)
    return labels, (inside & said).cumprod(-1).bool()


def block_loss(
    logits: Tensor,  # [n, N, b-1, V]
    labels: Tensor,  # [n, N, b-1]
    is_label: Tensor,  # [n, N, b-1] bool
    decay: float,
) -> Tensor:
    """Return the position-decayed mean cross-entropy, a scalar in nats."""
    losses = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    slots = torch.arange(labels.shape[-1], device=labels.device)
    weights = (is_label * torch.exp(-slots / decay)).flatten()
    return (losses * weights).sum() / weights.sum().clamp(min=1e-9)


def train_draft(
    target: Target,
    train: Sequence[Example],
    validation: Sequence[Example],
    config: DraftConfig,
    training: DraftTraining,
    loop: LoopSettings,
    checkpoint: Path,
) -> tuple[DFlashDraft, LoopState]:
    """Train a draft on conversations whose responses the target wrote; resumes.

    Args:
        target: Loaded with `config.target_layer_ids` as feature layers; stays frozen.
        train: Conversations.
        validation: Conversations for the simulated acceptance.
        config: The draft's architecture, trained block size included.
        training: Blocks per step and loss.
        loop: Steps and learning rate.
        checkpoint: Where progress is kept.
    """
    torch.manual_seed(training.seed)
    draft = DFlashDraft(config).to(target.device)
    batches = plan_batches(train, training.batch_tokens, training.seed)

    def compute_loss(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(training.seed * 1_000_003 + step)
        ids, is_response = collate([train[i] for i in batches[step % len(batches)]])
        anchors, is_real = sample_anchors(is_response, training.anchors_per_example, generator)
        ids, is_response = ids.to(target.device), is_response.to(target.device)
        anchors, is_real = anchors.to(target.device), is_real.to(target.device)
        features = target.forward(ids).features.clone()
        logits = block_logits(draft, target, ids, features, anchors, config.block_size)
        labels, is_label = block_labels(ids, is_response, anchors, config.block_size)
        return block_loss(logits, labels, is_label & is_real[..., None], training.decay)

    def evaluate() -> dict:
        return simulated_tau(draft, target, validation)

    return draft, run_loop(draft, compute_loss, loop, checkpoint, evaluate, "train draft")


@torch.no_grad()
def simulated_tau(
    draft: DFlashDraft, target: Target, examples: Sequence[Example], block_size: int | None = None
) -> dict[str, float]:
    """Return tau per domain from teacher-forced blocks at every position, walked like decoding.

    Per-slot accuracy would flatter a draft: one early miss throws the rest of its block away.
    """
    size = block_size or draft.block_size
    taus: dict[str, list[float]] = {}
    for example in examples:
        ids, is_response = collate([example])
        ids, is_response = ids.to(target.device), is_response.to(target.device)
        anchors = is_response[0].nonzero()[:-1].T
        logits = block_logits(draft, target, ids, target.forward(ids).features, anchors, size)
        labels, is_label = block_labels(ids, is_response, anchors, size)
        matches = (logits.argmax(-1) == labels) & is_label
        accepted = matches.cumprod(-1).sum(-1)[0].tolist()
        taus.setdefault(example.domain, []).append(tau(_walk(accepted)))
    return {f"tau_{domain}": sum(v) / len(v) for domain, v in sorted(taus.items())}


def _walk(accepted: list[int]) -> list[int]:
    """Return committed tokens per round when rounds follow each other over all anchors."""
    committed, at = [], 0
    while at < len(accepted):
        step = min(accepted[at] + 1, len(accepted) - at)
        committed.append(step)
        at += step
    return committed
