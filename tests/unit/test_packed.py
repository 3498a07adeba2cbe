"""Packed attention: every row gathers what a loop over single rows gathers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from blockpilot import packed
from blockpilot.packed import Blocks, PackedContext, flex_mask

HEADS, KEY_HEADS, SIZE = 4, 2, 8


@dataclass(kw_only=True)
class Case:
    """Blocks over documents, and tensors of the right shapes."""

    offsets: Tensor  # [D + 1]
    blocks: Blocks
    layers: list[tuple[Tensor, Tensor]]  # keys and values [1, G, C, d]
    queries: Tensor  # [1, A, R, d]
    keys: Tensor  # [1, G, R, d]
    values: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.queries, self.keys, self.values, *self.layers[0], *self.layers[1]]

    def attend(self, layer: int = 0) -> Tensor:
        context = PackedContext(self.layers, self.offsets).under(self.blocks)
        return context.attend(layer, self.queries, self.keys, self.values)

    def naive(self, layer: int = 0) -> Tensor:
        """Return the same from one softmax per row and head."""
        context_keys, context_values = self.layers[layer]
        rows = []
        first = 0
        for document, anchor, size in zip(
            self.blocks.document.tolist(),
            self.blocks.anchor.tolist(),
            self.blocks.size.tolist(),
            strict=True,
        ):
            start = int(self.offsets[document])
            seen, own = slice(start, start + anchor), slice(first, first + size)
            for row in range(first, first + size):
                heads = []
                for head in range(self.queries.shape[1]):
                    group = head // (self.queries.shape[1] // self.keys.shape[1])
                    keys = torch.cat([context_keys[0, group, seen], self.keys[0, group, own]])
                    values = torch.cat([context_values[0, group, seen], self.values[0, group, own]])
                    scores = keys @ self.queries[0, head, row] / self.queries.shape[-1] ** 0.5
                    heads.append(scores.softmax(0) @ values)
                rows.append(torch.stack(heads))
            first += size
        return torch.stack(rows, dim=1)[None]


def make_case(
    lengths: list[int],
    blocks: list[tuple[int, int, int]],  # (document, anchor, size)
    seed: int = 0,
    heads: tuple[int, int] = (HEADS, KEY_HEADS),
    dtype: torch.dtype = torch.float64,
    size: int = SIZE,
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int, rows: int) -> Tensor:
        drawn = torch.randn(1, heads, rows, size, generator=generator, dtype=torch.float64)
        return (2 * drawn).to(dtype)

    total, rows = sum(lengths), sum(size for _, _, size in blocks)
    document, anchor, sizes = torch.tensor(blocks).T
    return Case(
        offsets=torch.tensor([0, *lengths]).cumsum(0),
        blocks=Blocks(document=document, anchor=anchor, size=sizes),
        layers=[(draw(heads[1], total), draw(heads[1], total)) for _ in range(2)],
        queries=draw(heads[0], rows),
        keys=draw(heads[1], rows),
        values=draw(heads[1], rows),
    )


CASES = {
    "one block": ([5], [(0, 3, 4)]),
    "all anchors of a document": ([6], [(0, a, 3) for a in range(7)]),
    "nothing before the anchor": ([4, 4], [(0, 0, 2), (1, 0, 5)]),
    "anchor 0 beside others": ([9], [(0, 7, 2), (0, 0, 3), (0, 4, 1)]),
    "equal anchors": ([9], [(0, 6, 2), (0, 6, 5), (0, 6, 2)]),
    "mixed sizes": ([8, 3], [(0, 1, 4), (0, 8, 1), (0, 2, 2), (1, 2, 4), (1, 1, 7), (1, 3, 2)]),
    "a document without blocks": ([4, 6, 5], [(0, 2, 3), (2, 5, 2), (2, 1, 3)]),
    "first and last without blocks": ([4, 6, 5], [(1, 6, 3), (1, 3, 3)]),
    "blocks of one row": ([7], [(0, a, 1) for a in (5, 2, 2, 0)]),
}


def random_layout(seed: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    lengths = [integer(1, 12) for _ in range(integer(1, 5))]
    blocks = [
        (document, integer(0, length), integer(1, 6))
        for document, length in enumerate(lengths)
        for _ in range(integer(0, 4))
    ]
    return lengths, blocks or [(0, 1, 2)]


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("heads", [(4, 2), (4, 1), (3, 3)], ids=str)
def test_every_row_equals_a_loop_over_rows(name, heads) -> None:
    case = make_case(*CASES[name], heads=heads)
    for layer in range(2):
        assert_close(case.attend(layer), case.naive(layer))
    sees_context = bool((case.blocks.anchor > 0).any())
    assert sees_context == bool((case.attend(0) - case.attend(1)).abs().max() > 1e-2)


def test_random_layouts_equal_a_loop_over_rows() -> None:
    for seed in range(60):
        case = make_case(*random_layout(seed), seed=seed)
        assert_close(case.attend(), case.naive())


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_the_loop(name) -> None:
    case = make_case(*CASES[name])
    for tensor in case.tensors():
        tensor.requires_grad_()
    weights = torch.randn(case.queries.shape, dtype=torch.float64)
    inputs = case.tensors()[:5]  # the second layer takes no part
    expected = torch.autograd.grad((case.naive() * weights).sum(), inputs)
    found = torch.autograd.grad((case.attend() * weights).sum(), inputs)
    assert expected[2].abs().max() > 1e-2
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_scores_far_apart_neither_overflow_nor_lose_a_part() -> None:
    for scale in (1.0, 40.0, 400.0):
        case = make_case(*CASES["mixed sizes"])
        case = replace(case, queries=case.queries * scale)
        found = case.attend()
        assert found.isfinite().all()
        torch.testing.assert_close(found, case.naive(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", [1, -1])
def test_an_anchor_off_by_one_is_noticed(shift) -> None:
    case = make_case(*CASES["mixed sizes"])
    expected = case.naive()
    for index, anchor in enumerate(case.blocks.anchor.tolist()):
        length = int(case.offsets.diff()[case.blocks.document[index]])
        if not 0 <= anchor + shift <= length:
            continue
        anchors = case.blocks.anchor.clone()
        anchors[index] += shift
        found = replace(case, blocks=replace(case.blocks, anchor=anchors)).attend()
        block, _ = case.blocks.per_row()
        changed = (found - expected).abs().amax((0, 1, 3)) > 1e-4
        assert torch.equal(changed, block == index)


def test_a_block_sees_neither_other_documents_nor_other_blocks() -> None:
    case = make_case(*CASES["mixed sizes"])
    before = case.attend()
    block, _ = case.blocks.per_row()
    # The second document and the rows of the first block change; all others stay.
    for tensor in case.layers[0]:
        tensor[:, :, 8:] += 1
    case.keys[:, :, block == 0] += 1
    case.values[:, :, block == 0] -= 1
    changed = (case.attend() - before).abs().amax((0, 1, 3)) > 1e-9
    document = case.blocks.document[block]
    assert torch.equal(changed, (block == 0) | (document == 1))


def test_slots_count_from_the_first_row_of_each_block() -> None:
    blocks = make_case(*CASES["mixed sizes"]).blocks
    assert blocks.first_row.tolist() == [0, 4, 5, 7, 11, 18]
    block, slot = blocks.per_row()
    assert block.tolist() == [0] * 4 + [1] + [2] * 2 + [3] * 4 + [4] * 7 + [5] * 2
    assert slot.tolist() == [0, 1, 2, 3, 0, 0, 1, 0, 1, 2, 3, *range(7), 0, 1]


def test_the_flex_mask_lets_every_row_see_its_context_and_its_block() -> None:
    for name, (lengths, layout) in CASES.items():
        case = make_case(lengths, layout)
        block, _ = case.blocks.per_row()
        total = sum(lengths)
        mask = flex_mask(case.blocks, case.offsets)
        for query in range(len(block)):
            document, anchor, _size = layout[int(block[query])]
            start = int(case.offsets[document])
            seen = [
                key
                for key in range(total + len(block))
                if bool(mask.mask_mod(0, 0, torch.tensor(query), torch.tensor(key)))
            ]
            own = (block == block[query]).nonzero()[:, 0] + total
            assert seen == [*range(start, start + anchor), *own.tolist()], name


def flex_runs_here() -> bool:
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.ones(1, 1, 4, 16)
    try:
        flex_attention(x, x, x)
    except (NotImplementedError, RuntimeError):
        return False
    return True


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_flex_kernel_equals_the_parts() -> None:
    if not flex_runs_here():
        pytest.skip("flex attention has no kernel for this machine")
    layout = [(0, 20, 5), (0, 0, 5), (0, 149, 3), (0, 128, 5), (1, 3, 1), (1, 3, 5), (1, 70, 8)]
    # More than one tile of 128 keys, and of 128 rows.
    layout += [(2, anchor, 4) for anchor in range(30)]
    case = make_case([150, 71, 40], layout, dtype=torch.float32, size=16)
    context = PackedContext(case.layers, case.offsets)

    def gather(blocks: Blocks) -> Tensor:
        kernel = packed._FlexAttention(context, blocks)
        return kernel.attend(1, case.queries, case.keys, case.values)

    expected = case.attend(1)
    torch.testing.assert_close(gather(case.blocks), expected, rtol=1e-4, atol=1e-4)
    shifted = replace(case.blocks, anchor=case.blocks.anchor + 1)
    assert (gather(shifted) - expected).abs().max() > 1e-2
