"""The decode loop: one for every block size and policy. Autoregressive decoding is b = 1.

Shapes: b = block size, P = prompt length, H = hidden size, V = vocabulary, k = feature layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from blockpilot.checkpoints import check_request
from blockpilot.draft import ContextCache, DFlashDraft
from blockpilot.errors import bad_input
from blockpilot.policies import Policy, Request
from blockpilot.rounds import commit, count_accepted, last_block_size
from blockpilot.sampling import GREEDY, Sampler, Sampling, resolve_seed
from blockpilot.target import Target, TargetOutput
from blockpilot.timing import now_s


@dataclass(kw_only=True, slots=True)
class Generation:
    """A finished request.

    Attributes:
        output_ids: Emitted tokens; the first one comes from prefill and belongs to no round.
        block_sizes: Verified tokens per round, the anchor included.
        num_accepted: Accepted drafts per round, before clipping.
        num_committed: Emitted tokens per round, after clipping.
        stop_reason: "stop" if a stop token ended the request, else "length".
        prefill_logits: p(x) [V].
        prefill_hidden: h(x) [H].
        prefill_s: Seconds until the first token.
        select_s: Seconds the policy took to choose.
        decode_s: Seconds of all rounds, the first draft pass included.
    """

    output_ids: list[int] = field(default_factory=list)
    block_sizes: list[int] = field(default_factory=list)
    num_accepted: list[int] = field(default_factory=list)
    num_committed: list[int] = field(default_factory=list)
    stop_reason: str = "length"
    prefill_logits: Tensor | None = None
    prefill_hidden: Tensor | None = None
    prefill_s: float = 0.0
    select_s: float = 0.0
    decode_s: float = 0.0


@torch.inference_mode()
def generate(
    target: Target,
    draft: DFlashDraft | None,
    prompt_ids: Sequence[int],
    policy: Policy,
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    sampling: Sampling = GREEDY,
    seed: int | None = None,
    domain: str | None = None,
) -> Generation:
    """Decode one request with the block size that `policy` chooses after prefill.

    Under `match` and `coupled` the emitted text depends on target, prompt, sampling and seed
    alone, never on the draft or the block size (up to the target's own floating-point error).
    Under `rejection` only its distribution is the target's.

    Args:
        target: The verifying model.
        draft: The drafter; may be None for policies that do not use one.
        prompt_ids: Token ids of the prompt.
        policy: Chooses the block size.
        max_new_tokens: Most tokens to emit.
        stop_ids: Tokens that end the request; the stop token itself is emitted.
        sampling: Temperature, truncation and verification scheme; greedy by default.
        seed: Of the sampling noise; drawn from torch's generator if None.
        domain: Passed to the policy, for analysis only.

    Raises:
        BlockPilotError: If the request does not fit the context or an argument is out of range.
    """
    check_request(prompt_ids, max_new_tokens, target.context_tokens)
    if policy.uses_draft and draft is None:
        raise bad_input(f"draft of policy {policy.name}", None, "a DFlashDraft", "Load one.")
    sampler = Sampler(sampling, resolve_seed(seed), prompt_ids, target.device)
    run = _Run(target, draft if policy.uses_draft else None, sampler, prompt_ids, max_new_tokens)
    run.prefill(stop_ids)
    result = run.result
    clock_s = now_s(target.device)
    size = policy.begin(
        Request(
            prompt_ids=prompt_ids,
            prefill_logits=result.prefill_logits,
            prefill_hidden=result.prefill_hidden,
            domain=domain,
        )
    )
    result.select_s = now_s(target.device) - clock_s
    if size < 1:
        raise bad_input(f"block size of policy {policy.name}", size, "an integer >= 1", "Fix it.")
    clock_s = now_s(target.device)
    while not run.finished:
        run.round(size, stop_ids)
    result.decode_s = now_s(target.device) - clock_s
    return result


class _Run:
    """One request in flight. Invariant before a round: both caches end at `start`, the anchor."""

    def __init__(
        self,
        target: Target,
        draft: DFlashDraft | None,
        sampler: Sampler,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
    ) -> None:
        self.target, self.draft, self.sampler = target, draft, sampler
        self.prompt_ids = prompt_ids
        self.max_new_tokens = max_new_tokens
        capacity = len(prompt_ids) + max_new_tokens
        self.cache = target.new_cache(capacity)
        self.context: ContextCache | None = draft.new_cache(capacity) if draft else None
        self.features: Tensor | None = None  # [1, m, k*H] committed rows the draft has not seen
        self.start = len(prompt_ids)
        self.result = Generation()
        self.finished = False

    def prefill(self, stop_ids: Collection[int]) -> None:
        """Run the prompt; emits the first token."""
        clock_s = now_s(self.target.device)
        ids = torch.tensor([list(self.prompt_ids)], device=self.target.device)
        output = self.target.forward(ids, self.cache, want_features=self.draft is not None)
        hidden = output.hidden[0, -1:]
        logits = self.target.head(hidden)
        noise = self.sampler.noise(self.start, 1, logits.shape[-1])
        anchor = int(self.sampler.sampling.choose(logits, noise))
        self.features = output.features
        self.result.prefill_hidden, self.result.prefill_logits = hidden[0], logits[0]
        self.result.output_ids.append(anchor)
        self._finish_if(anchor in stop_ids)
        self.result.prefill_s = now_s(self.target.device) - clock_s

    def round(self, block_size: int, stop_ids: Collection[int]) -> None:
        """Draft, verify and commit one block."""
        remaining = self.max_new_tokens - len(self.result.output_ids)
        size = last_block_size(block_size, remaining)
        block = self._anchor_and_masks(size)
        # Computed once, for draft and target alike.
        noise = self.sampler.noise(self.start + 1, size, self.target.vocab_size)
        draft_logits = self._draft_into(block, noise) if self.draft is not None else None
        output = self.target.forward(block, self.cache, want_features=self.draft is not None)
        drafts = block[0, 1:]
        posterior = self.sampler.verify(
            self.target.head(output.hidden[0]), noise, self.start + 1, drafts, draft_logits
        )
        # One transfer to the host per round: drafts and posterior together.
        ids = torch.cat([drafts, posterior]).tolist()
        drafted, posterior_ids = ids[: size - 1], ids[size - 1 :]
        accepted = count_accepted(drafted, posterior_ids)
        committed, stopped = commit(posterior_ids, accepted, stop_ids, remaining)
        self._commit(size, accepted, committed, output)
        self._finish_if(stopped)

    def _anchor_and_masks(self, size: int) -> Tensor:
        """Return the block [1, b] before drafting."""
        mask_id = self.draft.config.mask_token_id if self.draft is not None else 0
        ids = [self.result.output_ids[-1]] + [mask_id] * (size - 1)
        return torch.tensor([ids], device=self.target.device)

    def _draft_into(self, block: Tensor, noise: Tensor | None) -> Tensor | None:
        """Feed the draft its pending context, replace the masks by drafts, return their logits."""
        self.draft.append_context(self.features, self.context)
        size = block.shape[1]
        if size == 1:
            return None
        positions = range(self.start, self.start + size)
        embeddings = torch.nn.functional.embedding(block, self.target.embeddings)
        hidden = self.draft(embeddings, positions, self.context)
        logits = self.target.head(hidden[0, 1:])
        block[0, 1:] = self.sampler.propose(logits, noise, self.start + 1)
        return logits

    def _commit(self, size: int, accepted: int, committed: list[int], output: TargetOutput) -> None:
        """Emit the committed tokens and cut both caches back to the new anchor."""
        count = len(committed)
        self.start += count
        self.cache.truncate(self.start)
        self.features = output.features[:, :count]
        self.result.output_ids += committed
        self.result.block_sizes.append(size)
        self.result.num_accepted.append(accepted)
        self.result.num_committed.append(count)

    def _finish_if(self, stopped: bool) -> None:
        if stopped:
            self.result.stop_reason = "stop"
        self.finished = stopped or len(self.result.output_ids) >= self.max_new_tokens
