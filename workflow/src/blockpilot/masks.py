"""Which keys a packed block row may see: one definition for dense and flex attention.

Keys are [S context rows | N * b block rows]; queries are the block rows.
Shapes: n = conversations, N = anchors per conversation, b = block size.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_visible(anchor, block, key, context_tokens: int, block_size: int):
    """Return whether block row (anchor, block) sees `key`; elementwise on integers or tensors.

    The context strictly before the anchor (the anchor itself has no features yet), and all rows
    of the own block.
    """
    in_context = (key < context_tokens) & (key < anchor)
    in_block = (key >= context_tokens) & ((key - context_tokens) // block_size == block)
    return in_context | in_block


def dense_mask(anchors: Tensor, context_tokens: int, block_size: int) -> Tensor:
    """Return the mask [n, 1, N*b, S + N*b] for `scaled_dot_product_attention`."""
    _, count = anchors.shape
    device = anchors.device
    keys = torch.arange(context_tokens + count * block_size, device=device)
    blocks = torch.arange(count, device=device).repeat_interleave(block_size)
    rows = anchors.repeat_interleave(block_size, dim=1)
    visible = is_visible(
        rows[..., None], blocks[None, :, None], keys[None, None], context_tokens, block_size
    )
    return visible[:, None]


def flex_mask(anchors: Tensor, context_tokens: int, block_size: int):
    """Return the same mask as a block-sparse `BlockMask` for flex attention."""
    from torch.nn.attention.flex_attention import create_block_mask

    n, count = anchors.shape

    def visible(row, _head, query, key):
        block = query // block_size
        return is_visible(anchors[row, block], block, key, context_tokens, block_size)

    queries = count * block_size
    return create_block_mask(
        visible, n, None, queries, context_tokens + queries, device=str(anchors.device)
    )
