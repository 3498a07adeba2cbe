"""Autoregressive trajectories in batches: the committed text that labels are made from.

Shapes: n = batch rows, q = query tokens, S = padded prompt length, V = vocabulary, H = hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from blockpilot.checkpoints import check_request
from blockpilot.parts import bucket_of
from blockpilot.progress import track
from blockpilot.sampling import GREEDY, Sampling, choose_tokens, noise_key
from blockpilot.target import Target


@dataclass(kw_only=True, slots=True)
class Trajectory:
    """One request's text under `ar`; `greedy_share` of its tokens are the target's argmax."""

    output_ids: list[int]
    stop_reason: str
    greedy_share: float
    prefill_logits: np.ndarray  # [V]
    prefill_hidden: np.ndarray  # [H]


def plan_batches(
    prompt_ids: Sequence[str], lengths: Sequence[int], batch_size: int
) -> list[list[int]]:
    """Group requests of similar length inside fixed buckets of the prompt hash.

    A batch's make-up, and with it every last bit of its results, depends on its bucket alone and
    not on how many other prompts there are elsewhere.

    Args:
        prompt_ids: 16 hexadecimal digits each.
        lengths: Prompt tokens.
        batch_size: Most rows per batch.

    Returns:
        Lists of indices.
    """
    buckets: dict[str, list[int]] = {}
    for index, prompt_id in enumerate(prompt_ids):
        buckets.setdefault(bucket_of(prompt_id), []).append(index)
    batches = []
    for bucket in sorted(buckets):
        rows = sorted(buckets[bucket], key=lambda i: (lengths[i], prompt_ids[i]))
        batches += [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
    return batches


@torch.inference_mode()
def decode_batch(
    target: Target,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
    sampling: Sampling = GREEDY,
    seed: int = 0,
) -> list[Trajectory]:
    """Decode left-padded prompts together; finished rows leave the batch.

    Positions and noise are those of the unpadded sequences, so that a row's text equals what
    `generate` gives with the policy `ar`.
    """
    batch = _Batch(target, prompts, max_new_tokens, sampling, seed)
    hidden = batch.prefill()
    logits = target.head(hidden)
    for row in range(len(prompts)):
        batch.prefills.append(
            (logits[row].float().cpu().numpy(), hidden[row].float().cpu().numpy())
        )
    batch.emit(logits, stop_ids)
    while batch.alive:
        batch.emit(target.head(batch.step()), stop_ids)
    return batch.trajectories()


class _Batch:
    """Rows in flight; `alive` maps batch rows to requests."""

    def __init__(
        self,
        target: Target,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
    ) -> None:
        self.target, self.prompts = target, prompts
        self.max_new_tokens, self.sampling, self.seed = max_new_tokens, sampling, seed
        device = target.device
        lengths = torch.tensor([len(p) for p in prompts], device=device)
        self.width = int(lengths.max())
        self.padding = self.width - lengths  # [n]
        self.keys = torch.tensor([noise_key(p) for p in prompts], device=device)
        self.cache = target.new_cache(self.width + max_new_tokens)
        self.outputs: list[list[int]] = [[] for _ in prompts]
        self.greedy = [0] * len(prompts)
        self.stop_reasons = ["length"] * len(prompts)
        self.prefills: list[tuple[np.ndarray, np.ndarray]] = []
        self.alive = list(range(len(prompts)))
        self.last: Tensor | None = None  # [n] newest token per row

    def prefill(self) -> Tensor:
        """Run the padded prompts; return the last position's hidden states [n, H]."""
        ids = torch.zeros(len(self.prompts), self.width, dtype=torch.long)
        for row, prompt in enumerate(self.prompts):
            ids[row, self.width - len(prompt) :] = torch.tensor(list(prompt))
        index = torch.arange(self.width, device=self.target.device)
        positions = (index[None] - self.padding[:, None]).clamp(min=0)
        causal = index[:, None] >= index[None, :]
        # Padding sees itself: a row without any visible key would have no softmax.
        real = (index[None] >= self.padding[:, None])[:, None, :] | torch.eye(
            self.width, dtype=torch.bool, device=index.device
        )
        visible = (causal & real)[:, None]
        ids = ids.to(self.target.device)
        output = self.target.forward(ids, self.cache, positions, visible, want_features=False)
        return output.hidden[:, -1]

    def step(self) -> Tensor:
        """Run the newest tokens; return hidden states [n, H]."""
        cached = self.cache.length
        positions = (cached - self.padding)[:, None]
        index = torch.arange(cached + 1, device=self.target.device)
        visible = (index[None] >= self.padding[:, None])[:, None, None]
        output = self.target.forward(
            self.last[:, None], self.cache, positions, visible, want_features=False
        )
        return output.hidden[:, 0]

    def emit(self, logits: Tensor, stop_ids: Collection[int]) -> None:
        """Choose every row's next token and drop the rows that are done."""
        positions = self.cache.length - self.padding
        tokens = choose_tokens(logits, self.sampling, self.keys, self.seed, positions)
        greedy = (tokens == logits.argmax(-1)).tolist()
        going = []
        for row, token in enumerate(tokens.tolist()):
            request = self.alive[row]
            self.outputs[request].append(token)
            self.greedy[request] += greedy[row]
            if token in stop_ids:
                self.stop_reasons[request] = "stop"
            elif len(self.outputs[request]) < self.max_new_tokens:
                going.append(row)
        self.last = tokens
        if len(going) < len(self.alive):
            self._keep(going)

    def _keep(self, rows: list[int]) -> None:
        self.alive = [self.alive[row] for row in rows]
        index = torch.tensor(rows, dtype=torch.long, device=self.target.device)
        self.cache.keep_rows(index)
        self.padding, self.keys, self.last = self.padding[index], self.keys[index], self.last[index]

    def trajectories(self) -> list[Trajectory]:
        """Return the finished requests in the order of the prompts."""
        return [
            Trajectory(
                output_ids=self.outputs[i],
                stop_reason=self.stop_reasons[i],
                greedy_share=self.greedy[i] / len(self.outputs[i]),
                prefill_logits=self.prefills[i][0],
                prefill_hidden=self.prefills[i][1],
            )
            for i in range(len(self.prompts))
        ]


def check_prompts(prompts: pd.DataFrame, max_new_tokens: int, context_tokens: int) -> None:
    """Raise BlockPilotError for the first of the `prompts` rows that leaves no room to answer."""
    for row in prompts.itertuples(index=False):
        where = f"data set {row.dataset}, prompt {row.prompt_id}"
        check_request(row.input_ids, max_new_tokens, context_tokens, where)


def decode_trajectories(
    target: Target,
    prompts: pd.DataFrame,
    *,
    seeds: Sequence[int],
    sampling: Sampling,
    max_new_tokens: int,
    stop_ids: Collection[int],
    batch_size: int,
) -> Iterator[dict]:
    """Decode prompts with all seeds.

    Args:
        target: The model.
        prompts: Rows of `prompts` artifacts.
        seeds: Of the sampling noise.
        sampling: Temperature and truncation; the scheme does not matter without a draft.
        max_new_tokens: Most tokens per answer.
        stop_ids: Tokens that end an answer.
        batch_size: Most prompts decoded together.

    Yields:
        Rows of the `trajectories` artifact.
    """
    ids = [list(row) for row in prompts["input_ids"]]
    names = list(prompts["prompt_id"])
    batches = plan_batches(names, [len(prompt) for prompt in ids], batch_size)
    for seed, rows in product(seeds, batches):
        results = decode_batch(
            target,
            [ids[row] for row in rows],
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            sampling=sampling,
            seed=seed,
        )
        for row, result in zip(rows, results, strict=True):
            yield {"prompt_id": names[row], "seed": seed, "source": "ours"} | asdict(result)


def answer_greedily(
    target: Target,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    stop_ids: Collection[int],
    batch_size: int,
) -> list[list[int]]:
    """Return the greedy answers' token ids, in the order of the prompts."""
    answers: list[list[int]] = [[] for _ in prompts]
    names = [f"{noise_key(prompt) & (2**64 - 1):016x}" for prompt in prompts]
    for rows in track(
        plan_batches(names, [len(p) for p in prompts], batch_size),
        description="answer earlier turns",
        unit="batch",
    ):
        batch = [prompts[row] for row in rows]
        results = decode_batch(target, batch, max_new_tokens=max_new_tokens, stop_ids=stop_ids)
        for row, result in zip(rows, results, strict=True):
            answers[row] = result.output_ids
    return answers
