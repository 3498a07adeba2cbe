"""Tokenized conversations and their batches; targets and drafts train on the same ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Example:
    """A tokenized conversation.

    Attributes:
        ids: Token ids.
        is_response: For every token, whether the assistant says it (its stop token included).
        domain: Where the conversation comes from.
    """

    ids: list[int]
    is_response: list[bool]
    domain: str


def plan_batches(examples: Sequence[Example], tokens: int, seed: int) -> list[list[int]]:
    """Group examples of similar length into batches of at most `tokens` padded tokens."""
    rng = random.Random(seed)
    order = list(range(len(examples)))
    rng.shuffle(order)
    # Sorting inside large shuffled pools keeps padding small and batches mixed.
    pools = [order[start : start + 2048] for start in range(0, len(order), 2048)]
    batches: list[list[int]] = []
    for pool in pools:
        batch: list[int] = []
        for index in sorted(pool, key=lambda i: len(examples[i].ids)):
            if batch and (len(batch) + 1) * len(examples[index].ids) > tokens:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Pad on the right; return (input_ids [n, S], is_response [n, S] bool)."""
    # Multiples of 32 keep the number of distinct shapes small.
    length = -(-max(len(e.ids) for e in examples) // 32) * 32
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    is_response = torch.zeros(len(examples), length, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        is_response[row, : len(example.ids)] = torch.tensor(example.is_response)
    return ids, is_response
