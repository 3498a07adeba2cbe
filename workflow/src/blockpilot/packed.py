"""Many blocks over many committed texts in one draft pass.

Every block sees the context of its own document strictly before its anchor (the anchor itself
has no features yet) and all of itself. Context keys and values are computed once per document and
shared by all anchors and block sizes; no [queries x keys] mask of the whole pack is ever built.

Shapes: D = documents, C = context rows of all documents, N = blocks, R = block rows,
A/G = attention/key-value heads, d = head size, q = block rows of one document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Which blocks a pack holds: ordered by document, rows in the order of blocks and slots.

    Attributes:
        document: [N] ascending.
        anchor: [N] position of slot 0 in its document.
        size: [N] rows.
    """

    document: Tensor
    anchor: Tensor
    size: Tensor

    @property
    def first_row(self) -> Tensor:
        """Return the row of every block's slot 0, [N]."""
        return self.size.cumsum(0) - self.size

    def per_row(self) -> tuple[Tensor, Tensor]:
        """Return (block, slot) of every row, both [R]."""
        block = torch.repeat_interleave(self.size)
        slot = torch.arange(len(block), device=block.device) - self.first_row[block]
        return block, slot


class PackedContext:
    """Context keys and values of whole documents, one behind the other."""

    def __init__(
        self,
        pairs: list[tuple[Tensor, Tensor]],  # per layer [1, G, C, d]
        offsets: Tensor,  # [D + 1] first row of every document, and C
    ) -> None:
        self.pairs = pairs
        self.offsets = offsets

    def under(self, blocks: Blocks) -> _PackedAttention | _FlexAttention:
        """Return the context as `blocks` see it, to be passed to the draft."""
        kind = _FlexAttention if self.offsets.is_cuda else _PackedAttention
        return kind(self, blocks)


class _PackedAttention:
    """Context part per document and block part per block size, joined by their softmax sums."""

    def __init__(self, context: PackedContext, blocks: Blocks) -> None:
        self.context = context
        self.spans = _document_spans(blocks, context.offsets)
        first = blocks.first_row
        self.groups: list[tuple[int, Tensor]] = []  # block size, its rows [N_b * b]
        for size in blocks.size.unique().tolist():
            rows = first[blocks.size == size, None] + torch.arange(size, device=first.device)
            self.groups.append((size, rows.flatten()))

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what the block rows gather, [1, A, R, d]; queries as [1, A, R, d]."""
        grouped = queries[0].unflatten(0, (keys.shape[1], -1)) * queries.shape[-1] ** -0.5
        outer = self._context_part(layer, grouped)
        inner = self._block_part(grouped, keys[0], values[0])
        return _join(outer, inner).flatten(0, 1)[None]

    def _context_part(self, layer: int, queries: Tensor) -> _Part:
        """Attend to the documents; queries [G, A/G, R, d]."""
        keys, values = (x[0] for x in self.context.pairs[layer])
        parts = []
        for span in self.spans:
            end = span.start + span.high
            own = queries[:, :, span.rows]
            scores = own.flatten(1, 2) @ keys[:, span.start : end].transpose(1, 2)
            if span.hidden is not None:
                tail = scores.unflatten(1, own.shape[1:3])[..., span.low :]
                tail.masked_fill_(span.hidden, float("-inf"))
            part = _attend(scores, values[:, span.start : end])
            parts.append(tuple(x.unflatten(1, own.shape[1:3]) for x in part))
        return tuple(torch.cat(x, dim=2) for x in zip(*parts, strict=True))

    def _block_part(self, queries: Tensor, keys: Tensor, values: Tensor) -> _Part:
        """Attend inside the blocks; keys and values [G, R, d]."""
        parts, order = [], []
        for size, rows in self.groups:
            own = queries[:, :, rows].unflatten(2, (-1, size))
            own_keys = keys[:, None, rows].unflatten(2, (-1, size))
            own_values = values[:, None, rows].unflatten(2, (-1, size))
            part = _attend(own @ own_keys.transpose(-1, -2), own_values)
            parts.append(tuple(x.flatten(2, 3) for x in part))
            order.append(rows)
        if len(order) == 1:
            return parts[0]
        back = torch.cat(order).argsort()
        return tuple(torch.cat(x, dim=2)[:, :, back] for x in zip(*parts, strict=True))


# Softmax in parts: values weighted by exp(score - peak), the sum of those weights, the peak.
_Part = tuple[Tensor, Tensor, Tensor]


def _attend(scores: Tensor, values: Tensor) -> _Part:
    # A row that sees nothing has weight 0 in the join instead of NaN.
    peak = scores.detach().amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)
    weights = (scores - peak).exp_()
    return weights @ values, weights.sum(-1, keepdim=True), peak


def _join(first: _Part, second: _Part) -> Tensor:
    peak = torch.maximum(first[2], second[2])
    one, two = (first[2] - peak).exp(), (second[2] - peak).exp()
    return (first[0] * one + second[0] * two) / (first[1] * one + second[1] * two)


@dataclass(frozen=True, slots=True)
class _Span:
    """The blocks of one document: their rows, and what of the document they see.

    All of them see the keys before `low`, none those from `high` on; `hidden` [q, high - low]
    tells the rest, None if there is none.
    """

    rows: slice
    start: int
    low: int
    high: int
    hidden: Tensor | None


def _document_spans(blocks: Blocks, offsets: Tensor) -> list[_Span]:
    starts = offsets.tolist()
    documents, counts = blocks.document.unique_consecutive(return_counts=True)
    spans, block, row = [], 0, 0
    for document, count in zip(documents.tolist(), counts.tolist(), strict=True):
        own = slice(block, block + count)
        anchors, sizes = blocks.anchor[own], blocks.size[own]
        low, high = int(anchors.min()), max(int(anchors.max()), 1)
        end = row + int(sizes.sum())
        hidden = None
        if high > low:
            visible_keys = torch.arange(low, high, device=anchors.device)
            hidden = visible_keys >= anchors.repeat_interleave(sizes)[:, None]
        spans.append(_Span(slice(row, end), starts[document], low, high, hidden))
        block, row = block + count, end
    return spans


class _FlexAttention:
    """The same attention as one block-sparse kernel."""

    def __init__(self, context: PackedContext, blocks: Blocks) -> None:
        self.context = context
        self.mask = flex_mask(blocks, context.offsets)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what the block rows gather, [1, A, R, d]."""
        context_keys, context_values = self.context.pairs[layer]
        return _flex_kernel(queries.is_cuda)(
            queries,
            torch.cat([context_keys, keys], dim=2),
            torch.cat([context_values, values], dim=2),
            block_mask=self.mask,
            enable_gqa=True,
        )


@cache
def _flex_kernel(compiled: bool):
    """Return flex attention; only its compiled kernel skips what the mask hides."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def flex_mask(blocks: Blocks, offsets: Tensor):
    """Return who sees whom as a block-sparse `BlockMask` [R queries, C + R keys]."""
    from torch.nn.attention.flex_attention import create_block_mask

    context_tokens = int(offsets[-1])
    block_of_row, _ = blocks.per_row()
    begin = offsets[blocks.document]
    end = begin + blocks.anchor
    last_row = len(block_of_row) - 1

    def visible(_row, _head, query, key):
        block = block_of_row[query]
        in_context = (key < context_tokens) & (key >= begin[block]) & (key < end[block])
        behind = (key - context_tokens).clamp(0, last_row)
        return in_context | ((key >= context_tokens) & (block_of_row[behind] == block))

    rows = len(block_of_row)
    return create_block_mask(
        visible, None, None, rows, context_tokens + rows, device=str(offsets.device)
    )
