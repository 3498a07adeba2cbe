"""Text of another engine as trajectories: teacher-forced passes take the place of decoding.

Shapes: S = tokens of a text, T = its output tokens, V = vocabulary, H = hidden size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from blockpilot.checkpoints import check_request
from blockpilot.errors import bad_input
from blockpilot.parts import bucket_of
from blockpilot.prompt_files import (
    RESPONSE_COLUMN,
    RESPONSES_REMEDY,
    TEXT_COLUMN,
    check_single_turn,
    is_encodable,
    read_records,
)
from blockpilot.prompts import drop_repeats, hash_turns
from blockpilot.target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SOURCE = "external"
FINISH_COLUMN = "finish_reason"
MEGABYTE = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """An answer as `decode` would have ended it: "stop" if its last token is a stop token."""

    output_ids: list[int]
    stop_reason: str


def read_responses(
    settings: Mapping,
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Collection[int],
    max_new_tokens: int,
    vocab_size: int,
) -> dict[str, Response]:
    """Read the responses of a data set with the source `responses`, by conversation_id.

    A response is a list of token ids, taken as it is, or a text, which is encoded again: that may
    split words differently than the engine's sampling did, and lowers `greedy_share`.

    Args:
        settings: `prompts.datasets.NAME`: `path`, and optionally `column`, `response_column` and
            `count`. The file's column `finish_reason` is read where there is one.
        tokenizer: The target's.
        stop_ids: What follows the first of them is cut.
        max_new_tokens: Longer responses are cut.
        vocab_size: Of the target.

    Raises:
        BlockPilotError: If a record cannot be used, naming its file and line.
    """
    path = Path(settings["path"]).expanduser()
    column = settings.get("column") or TEXT_COLUMN
    response_column = settings.get("response_column") or RESPONSE_COLUMN
    columns, keyed = [column, response_column], []
    for where, record in read_records(path, columns, RESPONSES_REMEDY, [FINISH_COLUMN]):
        name = hash_turns(check_single_turn(f"{where}: {column}", record[column]))
        keyed.append((name, (name, where, record)))
    kept = drop_repeats(str(path), "prompts with their responses", keyed)
    found = {}
    for name, where, record in kept[: settings.get("count")]:
        finish = _check_finish(f"{where}: {FINISH_COLUMN}", record.get(FINISH_COLUMN))
        place = f"{where}: {response_column}"
        ids = _encode(place, record[response_column], finish, tokenizer, stop_ids)
        _check_ids(place, ids, vocab_size)
        found[name] = _cut(ids, stop_ids, max_new_tokens)
    return found


def _check_finish(where: str, value: object) -> str:
    """Return "stop" or "length"; engines that say nothing are taken to have stopped."""
    if value not in (None, "stop", "length"):
        remedy = "The response is not whole: ask for it again or remove the record."
        raise bad_input(where, value, 'null, "stop", "length"', remedy)
    return value or "stop"


def _encode(
    where: str,
    value: object,
    finish: str,
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Collection[int],
) -> list[int]:
    if isinstance(value, list) and value:
        return value
    text = value if isinstance(value, str) and is_encodable(value) else ""
    ids = tokenizer.encode(text, add_special_tokens=False) if text else []
    if not ids:
        allowed = "a text or a list of token ids, of at least one token"
        shown = value[:80] if isinstance(value, str) else value
        raise bad_input(where, shown, allowed, "Ask for the response again or remove the record.")
    # Engines strip the token that ended their text. A second one is cut like all that follows.
    stripped = finish == "stop" and tokenizer.eos_token_id in stop_ids
    return [*ids, tokenizer.eos_token_id] if stripped else ids


def _check_ids(where: str, ids: Sequence[object], vocab_size: int) -> None:
    for index, token in enumerate(ids):
        is_integer = isinstance(token, int) and not isinstance(token, bool)
        if not is_integer or not 0 <= token < vocab_size:
            allowed = f"an integer from 0 to {vocab_size - 1}, the target's vocabulary"
            remedy = "Use ids of the target's own tokenizer, or write the text."
            raise bad_input(f"{where}[{index}]", token, allowed, remedy)


def _cut(ids: list[int], stop_ids: Collection[int], max_new_tokens: int) -> Response:
    end = next((at for at, token in enumerate(ids, start=1) if token in stop_ids), len(ids))
    kept = ids[: min(end, max_new_tokens)]
    return Response(output_ids=kept, stop_reason="stop" if kept[-1] in stop_ids else "length")


class _Text(NamedTuple):
    """A prompt with its response."""

    prompt_id: str
    prompt: list[int]
    response: Response

    @property
    def input_ids(self) -> list[int]:
        """Return what the target reads: nothing is predicted from the last output token."""
        return [*self.prompt, *self.response.output_ids[:-1]]


def force_trajectories(
    target: Target, requests: pd.DataFrame, responses: Mapping[str, Response], *, memory_mb: int
) -> Iterator[dict]:
    """Turn responses into trajectories by teacher-forced passes of the target alone.

    The make-up of a batch depends on its bucket of prompt ids and on `memory_mb` alone, so that
    a bucket gives the same bits whether it is computed by itself or with others.

    Args:
        target: The model.
        requests: Rows of `prompts` artifacts.
        responses: By conversation_id.
        memory_mb: Bounds what a pass holds besides the model; a batch has at least one text.

    Yields:
        Rows of the `trajectories` artifact, with seed 0. `greedy_share` of the tokens are the
        target's argmax given the text before them.

    Raises:
        BlockPilotError: If a response is missing or does not fit the context; nothing is computed
            then.
    """
    texts = [_join(row, responses, target) for row in requests.to_dict("records")]
    memory_bytes = memory_mb * MEGABYTE
    # 8 bytes per logit in the widest precision, and as much again for the head's own work.
    rows_per_head = max(1, memory_bytes // (16 * target.vocab_size))
    for batch in _plan(texts, target, memory_bytes):
        yield from _force(target, batch, rows_per_head)


def _join(row: dict, responses: Mapping[str, Response], target: Target) -> _Text:
    where = f"data set {row['dataset']}, prompt {row['prompt_id']}"
    response = responses.get(row["conversation_id"])
    if response is None:
        allowed = f"one for conversation {row['conversation_id']}"
        remedy = "Add the prompt and its response to the data set's file, or take the prompt away."
        raise bad_input(f"{where}: response", "missing", allowed, remedy)
    prompt = [int(token) for token in row["input_ids"]]
    check_request(prompt, len(response.output_ids), target.context_tokens, where)
    return _Text(row["prompt_id"], prompt, response)


def _plan(texts: Sequence[_Text], target: Target, memory_bytes: int) -> Iterator[list[_Text]]:
    """Group texts of one bucket and similar length so that a padded batch stays in the memory."""
    keyed = [(bucket_of(t.prompt_id), len(t.input_ids), t.prompt_id, t) for t in texts]
    batch: list[_Text] = []
    latest = ""
    for bucket, length, _, text in sorted(keyed, key=lambda item: item[:3]):
        needed = (len(batch) + 1) * length * _token_bytes(target, length)
        if batch and (bucket != latest or needed > memory_bytes):
            yield batch
            batch = []
        batch.append(text)
        latest = bucket
    if batch:
        yield batch


def _token_bytes(target: Target, length: int) -> int:
    """Return the memory of one position in a pass over texts of `length`, in any precision."""
    config = target.config
    heads, hidden = config.num_attention_heads, config.hidden_size
    attention = heads * (getattr(config, "head_dim", None) or hidden // heads)
    feed_forward = getattr(config, "intermediate_size", None) or 4 * hidden
    # Only eager attention holds scores: one per head and earlier position, before and after.
    scores = 2 * heads * length if config._attn_implementation == "eager" else 0
    kept = len(target.feature_layer_ids) * hidden
    return 8 * (kept + 4 * hidden + 4 * attention + 3 * feed_forward + scores)


@torch.inference_mode()
def _force(target: Target, texts: Sequence[_Text], rows_per_head: int) -> list[dict]:
    """Run texts together, padded on the right."""
    ids = [torch.tensor(text.input_ids) for text in texts]
    batch = pad_sequence(ids, batch_first=True).to(target.device)
    # Causal: what lies behind a text does not change it, so padding needs no mask.
    hidden = target.forward(batch, want_features=False).hidden
    return [
        _make_row(target, text, hidden[row, len(text.prompt) - 1 : len(ids[row])], rows_per_head)
        for row, text in enumerate(texts)
    ]


def _make_row(
    target: Target,
    text: _Text,
    hidden: Tensor,  # [T, H] at the positions that the output tokens are predicted from
    rows_per_head: int,
) -> dict:
    output_ids = text.response.output_ids
    expected = torch.tensor(output_ids, device=hidden.device)
    greedy, prefill_logits = 0, None
    for rows, tokens in zip(
        hidden.split(rows_per_head), expected.split(rows_per_head), strict=True
    ):
        logits = target.head(rows)
        greedy += int((logits.argmax(-1) == tokens).sum())
        if prefill_logits is None:
            prefill_logits = _copy(logits[0])
    return {
        "prompt_id": text.prompt_id,
        "seed": 0,
        "output_ids": output_ids,
        "stop_reason": text.response.stop_reason,
        "source": SOURCE,
        "greedy_share": greedy / len(output_ids),
        "prefill_logits": prefill_logits,
        "prefill_hidden": _copy(hidden[0]),
    }


def _copy(vector: Tensor) -> np.ndarray:
    """Return a float32 copy: a view would keep the whole pass alive."""
    return np.array(vector.float().cpu().numpy())
