"""What choosing a block size costs beside what it serves: time and memory, measured alone.

Only the selector's make decides its time, so untrained ones are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from blockpilot.candidates import candidate_set
from blockpilot.knobs import Setting
from blockpilot.policies import ArPolicy, FixedPolicy, Policy
from blockpilot.progress import track
from blockpilot.selector import Selector, SelectorConfig, feature_size
from blockpilot.sweep import Decoder
from blockpilot.timing import now_s

WARM_UPS = 5
BYTES_PER_MB = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What the selectors are measured on.

    Attributes:
        prefill_logits: p(x) of one prompt [V].
        prefill_hidden: h(x) of the same prompt [H].
        trained_block_size: B, the middle of every candidate set.
        repeats: Timed choices per setting.
    """

    prefill_logits: torch.Tensor
    prefill_hidden: torch.Tensor
    trained_block_size: int
    repeats: int


def measure_selectors(settings: Sequence[Setting], inputs: Inputs) -> Iterator[dict]:
    """Yield an OVERHEAD row per setting: the time of one choice, and memory."""
    for setting in track(settings, description="time selectors", unit="setting"):
        yield _row("selector", "select") | asdict(setting) | _measure_selector(setting, inputs)


def _measure_selector(setting: Setting, inputs: Inputs) -> dict:
    """Return what one setting costs; its selector is freed before the next is made."""
    logits, hidden = inputs.prefill_logits, inputs.prefill_hidden
    config = SelectorConfig(
        features=setting.features,
        input_size=feature_size(setting.features, len(logits), len(hidden)),
        block_sizes=tuple(candidate_set(inputs.trained_block_size, setting.radius)),
        width=setting.width,
        depth=setting.depth,
        dropout=0.0,
        fallback_block_size=inputs.trained_block_size,
    )
    selector = Selector(config).to(logits.device).eval()

    def choose() -> None:
        selector.choose(logits, hidden)

    seconds = [time_call(choose, logits.device) for _ in range(WARM_UPS + inputs.repeats)]
    memory = {"activations_mb": peak_mb(choose, logits.device)}
    return _quantiles(seconds[WARM_UPS:]) | _size(selector) | memory


def measure_requests(decode: Decoder, requests: pd.DataFrame, block_size: int) -> Iterator[dict]:
    """Yield OVERHEAD rows of prefill and of whole requests, by `ar` and at one block size.

    Args:
        decode: A loaded pair.
        requests: Rows with input_ids and seed; the first one also warms up and shows memory.
        block_size: Compared with `ar`, interleaved.
    """
    policies: tuple[Policy, Policy] = ArPolicy(), FixedPolicy(block_size)
    rows = list(requests.itertuples(index=False))
    peaks = [_peak_of(decode, rows[0], policy) for policy in policies]
    ar, fixed = [], []
    for row in track(rows, description="time requests", unit="request"):
        for policy, results in zip(policies, (ar, fixed), strict=True):
            results.append(decode(list(row.input_ids), row.seed, policy))
    target = _size(decode.target.model) | {"activations_mb": peaks[0]}
    # What drafting adds to the memory of decoding without a draft.
    draft = _size(decode.draft) | {"activations_mb": max(0.0, peaks[1] - peaks[0])}
    yield _row("target", "prefill") | _quantiles([r.prefill_s for r in ar])
    yield _row("target", "ar", 1) | _quantiles([r.decode_s for r in ar]) | target
    yield _row("draft", "fixed", block_size) | _quantiles([r.decode_s for r in fixed]) | draft
    rounds = [r.decode_s / len(r.num_committed) for r in fixed if r.num_committed]
    yield _row("draft", "round", block_size) | _quantiles(rounds)


def _peak_of(decode: Decoder, row, policy: Policy) -> float:
    ids = list(row.input_ids)
    decode(ids, row.seed, policy)  # first calls allocate what later ones keep
    return peak_mb(lambda: decode(ids, row.seed, policy), decode.target.device)


def time_call(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call, the device's queue included."""
    start_s = now_s(device)
    call()
    return now_s(device) - start_s


def peak_mb(call: Callable[[], object], device: torch.device) -> float:
    """Return the most megabytes (1e6 bytes) of tensors that a call held at once, beyond before."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / BYTES_PER_MB
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = recorded.profiler.kineto_results.events()
    sizes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return max(np.cumsum(sizes).max(initial=0), 0) / BYTES_PER_MB


def _size(module: nn.Module) -> dict:
    parameters = list(module.parameters())
    return {
        "num_parameters": sum(p.numel() for p in parameters),
        "parameters_mb": sum(p.numel() * p.element_size() for p in parameters) / BYTES_PER_MB,
    }


def _quantiles(seconds: Sequence[float]) -> dict:
    p10, median, p90 = np.quantile(seconds, [0.1, 0.5, 0.9])
    return {"n": len(seconds), "median_s": median, "p10_s": p10, "p90_s": p90}


def _row(part: str, component: str, block_size: int | None = None) -> dict:
    empty = dict.fromkeys(("radius", "depth", "width", "features", "num_parameters"))
    empty |= dict.fromkeys(("parameters_mb", "activations_mb"))
    return {"part": part, "component": component, "block_size": block_size} | empty
