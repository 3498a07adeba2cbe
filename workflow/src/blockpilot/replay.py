"""Exact replay: what every draft would have been accepted for, from committed text alone.

The target's features of a committed text are one teacher-forced pass. The draft's context keys
and values depend on those features only, and a block on the context before its anchor and on
itself: so the drafts of any anchors and block sizes of many texts are one packed draft pass, and
comparing them with the text gives the rounds that decoding would have taken, number by number.

`replay_full` evaluates every anchor (policies, bounds), `replay_walks` only the anchors that fixed
block sizes visit (labels), in waves: all texts and sizes advance by one round at a time.

Shapes: D = texts, N = blocks, R = block rows, C = context rows of all texts, V = vocabulary,
H = hidden size, k = feature layers, w = positions of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from blockpilot.acceptance import UNKNOWN, AcceptanceTable
from blockpilot.draft import DFlashDraft
from blockpilot.errors import bad_input
from blockpilot.packed import Blocks, PackedContext
from blockpilot.sampling import Sampling, gumbel_noise, noise_key
from blockpilot.target import Target
from blockpilot.timing import now_s

MEGABYTE = 2**20
# Fewer positions per window would leave the packs nearly empty, whatever the memory.
LEAST_WINDOW = 16

# (text, draft size, anchor) of a block to evaluate; anchors are indices in the output ids.
Cell = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """A request's text, whoever decoded it.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        output_ids: The target's tokens, at least one; the first came from prefill.
        seed: Of the noise it was drawn with; only `coupled` at temperature > 0 reads it.
        limit_tokens: Most output tokens the request could have emitted (`max_new_tokens`).
    """

    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    seed: int
    limit_tokens: int


class Replay:
    """A loaded pair and how it samples; turns committed texts into acceptance tables.

    Args:
        target: Loaded with the draft's feature layers.
        draft: The drafter.
        sampling: `match` or `coupled`; the scheme the rounds are to be counted for.
        memory_mb: Bounds what a pass holds besides the models, the texts' features and their keys.

    Raises:
        BlockPilotError: For `rejection`, whose text depends on the block size.
    """

    def __init__(
        self, target: Target, draft: DFlashDraft, sampling: Sampling, memory_mb: int = 256
    ) -> None:
        if sampling.needs_noise and sampling.scheme == "rejection":
            raise bad_input(
                "sampling of a replay",
                "rejection",
                "match, coupled",
                "Its text depends on the block size, so every size has to be decoded live.",
            )
        self.target, self.draft, self.sampling = target, draft, sampling
        self.memory_bytes = memory_mb * MEGABYTE
        self.spent_s: dict[str, float] = {}  # seconds so far, by part

    def full(self, texts: Sequence[Committed], block_sizes: Sequence[int]) -> list[AcceptanceTable]:
        """Return tables that know every anchor at every one of `block_sizes`."""
        sizes = sorted(set(block_sizes))

        def wanted(table: AcceptanceTable, start: int, stop: int) -> Iterator[tuple[int, int]]:
            for anchor in range(start, min(stop, table.num_anchors)):
                for size in {table.shortened(b, anchor) for b in sizes}:
                    if table.num_accepted(size, anchor) == UNKNOWN:
                        yield size, anchor

        return self._run(texts, max(sizes, default=1), lambda _text: wanted)

    def walks(
        self, texts: Sequence[Committed], choices: Iterable[tuple[int, int]]
    ) -> list[AcceptanceTable]:
        """Return tables that know the anchors which each fixed (draft, verify) size visits."""
        choices = sorted(set(choices))

        def start_walkers(_text: int):
            places = [0] * len(choices)

            def wanted(table: AcceptanceTable, _start: int, stop: int):
                found = set()
                for index, (draft_size, verify_size) in enumerate(choices):
                    places[index] = _advance(table, draft_size, verify_size, places[index], stop)
                    anchor = places[index]
                    if anchor < min(stop, table.num_anchors):
                        found.add((table.shortened(draft_size, anchor), anchor))
                return found

            return wanted

        largest = max((draft for draft, _ in choices), default=1)
        return self._run(texts, largest, start_walkers)

    @torch.inference_mode()
    def _run(
        self, texts: Sequence[Committed], largest: int, start: Callable
    ) -> list[AcceptanceTable]:
        """Evaluate what `start(text)(table, start, stop)` asks for, window by window."""
        tables = [
            AcceptanceTable.empty([largest], len(text.output_ids), text.limit_tokens)
            for text in texts
        ]
        if largest == 1 or not texts:
            return tables
        clock_s = now_s(self.target.device)
        pack = _Pack(self, texts, largest)
        clock_s = self._spend("context", clock_s)
        ask = [start(index) for index in range(len(texts))]
        longest = max(table.num_anchors for table in tables)
        for begin in range(0, longest, pack.window):
            end = begin + pack.window
            pack.enter(begin)
            while cells := [
                (index, size, anchor)
                for index, table in enumerate(tables)
                for size, anchor in sorted(ask[index](table, begin, end))
            ]:
                self._evaluate(pack, tables, cells)
        self._spend("blocks", clock_s)
        return tables

    def _spend(self, part: str, since_s: float) -> float:
        end_s = now_s(self.target.device)
        self.spent_s[part] = self.spent_s.get(part, 0.0) + end_s - since_s
        return end_s

    def _evaluate(self, pack: _Pack, tables: list[AcceptanceTable], cells: list[Cell]) -> None:
        for part in pack.split(cells):
            found = pack.count_accepted(np.array(part))
            for (index, size, anchor), accepted in zip(part, found, strict=True):
                tables[index].accepted[size - 2, anchor] = accepted


def _advance(
    table: AcceptanceTable, draft_size: int, verify_size: int, anchor: int, stop: int
) -> int:
    """Walk on while the table knows the next round and it begins before `stop`."""
    while anchor < min(stop, table.num_anchors):
        size = table.shortened(draft_size, anchor)
        if table.num_accepted(size, anchor) == UNKNOWN:
            break
        anchor += table.num_committed(draft_size, verify_size, anchor)
    return anchor


class _Pack:
    """Texts whose context is loaded, ready to draft blocks at any of their anchors."""

    def __init__(self, replay: Replay, texts: Sequence[Committed], largest: int) -> None:
        self.target, self.draft, self.sampling = replay.target, replay.draft, replay.sampling
        self.texts, self.largest = texts, largest
        self.device = replay.target.device
        self.prompt_tokens = np.array([len(text.prompt_ids) for text in texts])
        # The last token has no features: nothing was ever computed behind it.
        lengths = [len(t.prompt_ids) + len(t.output_ids) - 1 for t in texts]
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.context = self._load_context(lengths, replay.memory_bytes)
        outputs = [torch.tensor(text.output_ids, dtype=torch.long) for text in texts]
        self.output_tokens = torch.tensor([len(ids) for ids in outputs], device=self.device)
        self.outputs = torch.nn.utils.rnn.pad_sequence(outputs, batch_first=True).to(self.device)
        self._plan_memory(replay.memory_bytes, max(lengths))
        self.noise: Tensor | None = None
        self.begin = 0

    def _load_context(self, lengths: list[int], memory_bytes: int) -> PackedContext:
        """Run the target over the texts; return the draft's context keys and values."""
        features = torch.cat(
            [
                packed
                for rows in _batches(lengths, self._feature_tokens(memory_bytes))
                for packed in self._features([self.texts[i] for i in rows])
            ]
        )[None]
        positions = torch.cat([torch.arange(n, device=self.device) for n in lengths])[None]
        pairs = self.draft.context_keys_values(features, positions)
        return PackedContext(pairs, torch.tensor(self.offsets, device=self.device))

    def _feature_tokens(self, memory_bytes: int) -> int:
        config = self.target.config
        width = 4 * config.hidden_size + 2 * getattr(config, "intermediate_size", 0)
        return max(64, memory_bytes // (8 * width))

    def _features(self, texts: list[Committed]) -> list[Tensor]:
        """Return the features [S, k*H] of texts that run together, padded on the right."""
        ids = [torch.tensor([*t.prompt_ids, *t.output_ids[:-1]], dtype=torch.long) for t in texts]
        batch = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.device)
        # Causal: what lies behind a text does not change it, so padding needs no mask.
        features = self.target.forward(batch).features
        return [features[row, : len(own)] for row, own in enumerate(ids)]

    def _plan_memory(self, memory_bytes: int, longest: int) -> None:
        """Size packs, head passes and windows so that each stays within the memory."""
        config, vocab = self.draft.config, self.target.vocab_size
        heads = config.num_attention_heads * longest * 3
        row_bytes = 4 * (heads + 3 * config.intermediate_size + 12 * config.hidden_size)
        self.rows_per_pass = max(self.largest, memory_bytes // row_bytes)
        self.rows_per_head = max(1, memory_bytes // (40 * vocab))
        self.window = longest
        if self.sampling.draft_needs_noise:
            # Noise is kept for a window of positions of all texts, each computed once.
            room = memory_bytes // (8 * vocab * len(self.texts))
            self.window = max(LEAST_WINDOW, min(longest, room - self.largest))

    def enter(self, begin: int) -> None:
        """Move to the anchors from `begin` on; draws the noise of the positions they draft."""
        self.begin = begin
        if not self.sampling.draft_needs_noise:
            return
        count = min(self.window + self.largest, self.outputs.shape[1] - begin)
        steps = torch.arange(begin, begin + count, device=self.device)
        vocab = self.target.vocab_size
        shape = (len(self.texts), count, vocab)
        self.noise = torch.empty(shape, dtype=torch.float64, device=self.device)
        for row, text in enumerate(self.texts):
            key = torch.tensor([noise_key(text.prompt_ids)], device=self.device)
            positions = steps + len(text.prompt_ids)
            self.noise[row] = gumbel_noise(key, text.seed, positions, vocab)

    def split(self, cells: list[Cell]) -> Iterator[list[Cell]]:
        """Cut cells, ordered by text, into packs of at most `rows_per_pass` rows."""
        ends = np.cumsum([size for _, size, _ in cells])
        start = 0
        while start < len(cells):
            room = self.rows_per_pass + (ends[start - 1] if start else 0)
            stop = max(start + 1, int(np.searchsorted(ends, room, side="right")))
            yield cells[start:stop]
            start = stop

    def count_accepted(self, cells: np.ndarray) -> list[int]:
        """Draft the blocks of cells [N, 3]; return how many drafts the text agrees with."""
        document, size, anchor = torch.tensor(cells, device=self.device).T
        prompt = torch.tensor(self.prompt_tokens, device=self.device)[document]
        blocks = Blocks(document=document, anchor=prompt + anchor, size=size)
        block, slot = blocks.per_row()
        ids = torch.full_like(block, self.draft.config.mask_token_id)
        ids[blocks.first_row] = self.outputs[document, anchor]
        embeddings = functional.embedding(ids, self.target.embeddings)
        positions = blocks.anchor[block] + slot
        hidden = self.draft(embeddings[None], positions[None], self.context.under(blocks))[0]
        return self._compare(hidden, blocks, anchor)

    def _compare(self, hidden: Tensor, blocks: Blocks, anchor: Tensor) -> list[int]:
        """Go through the slots while drafts agree: nobody asks for those behind a miss."""
        accepted = torch.zeros_like(anchor)
        alive = torch.arange(len(anchor), device=self.device)
        # Drafts behind the end of the text are compared with nothing.
        most = torch.minimum(blocks.size - 1, self.output_tokens[blocks.document] - 1 - anchor)
        for slot in range(1, self.largest):
            alive = alive[most[alive] >= slot]
            if not len(alive):
                break
            rows, at = blocks.first_row[alive] + slot, anchor[alive] + slot
            drafted = self._draft_tokens(hidden[rows], blocks.document[alive], at)
            alive = alive[drafted == self.outputs[blocks.document[alive], at]]
            accepted[alive] += 1
        return accepted.tolist()

    def _draft_tokens(self, hidden: Tensor, document: Tensor, at: Tensor) -> Tensor:
        """Return the draft's tokens for rows [n, H]; `at` is their index in the output ids."""
        found = []
        for part in torch.arange(len(hidden), device=self.device).split(self.rows_per_head):
            logits = self.target.head(hidden[part])
            noise = None
            if self.noise is not None:
                noise = self.noise[document[part], at[part] - self.begin]
            found.append(self.sampling.propose(logits, noise))
        return torch.cat(found)


def _batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Group neighbours so that a padded batch holds at most `tokens`; at least one per batch."""
    batch: list[int] = []
    for index, _ in enumerate(lengths):
        longest = max([lengths[i] for i in batch] + [lengths[index]])
        if batch and longest * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
