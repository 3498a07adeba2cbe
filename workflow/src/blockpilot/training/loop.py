"""The training loop that targets and drafts share: schedule, clipping, checkpoints, history."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from blockpilot.progress import track
from blockpilot.provenance import atomic_path


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSettings:
    """How long and how fast to train.

    Attributes:
        steps: Optimizer steps.
        warmup_share: Share of the steps over which the learning rate rises linearly from 0.
        learning_rate: Peak rate; it decays to 0 along a half cosine. Matrices inside the layers
            use Muon at this rate (scaled to AdamW's update size), everything else AdamW.
        clip_norm: Largest gradient norm.
        evaluate_every_steps: Steps between validations.
        save_every_s: Seconds between checkpoints.
    """

    steps: int
    warmup_share: float = 0.04
    learning_rate: float = 3e-3
    clip_norm: float = 1.0
    evaluate_every_steps: int = 200
    save_every_s: float = 60.0


@dataclass(kw_only=True)
class LoopState:
    """What a checkpoint restores besides tensors."""

    step: int = 0
    elapsed_s: float = 0.0
    history: list[dict] = field(default_factory=list)


def make_optimizers(named: Iterable[tuple[str, nn.Parameter]], rate: float) -> list:
    """Return [Muon for matrices of the layers, AdamW for embeddings, heads, norms and biases]."""
    named = [(name, p) for name, p in named if p.requires_grad]
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(others, lr=rate, weight_decay=0.0, betas=(0.9, 0.95))]


def learning_rate_at(step: int, settings: LoopSettings) -> float:
    """Return the rate of `step` (0-based): linear warm-up, then a half cosine to 0."""
    warmup = max(1, round(settings.steps * settings.warmup_share))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    share = (step - warmup) / max(1, settings.steps - warmup)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


def run_loop(
    model: nn.Module,
    compute_loss: Callable[[int], Tensor],
    settings: LoopSettings,
    checkpoint: Path,
    evaluate: Callable[[], dict],
    description: str,
) -> LoopState:
    """Train `model` to `settings.steps`, continuing from `checkpoint` if it exists.

    Args:
        model: Updated in place.
        compute_loss: Maps a step to its scalar loss; a function of the step alone, so that a
            resumed training sees the batches it would have seen.
        settings: See `LoopSettings`.
        checkpoint: A safetensors file holding parameters, optimizer state and history.
        evaluate: Returns the columns of one history row.
        description: Names the progress bar.
    """
    optimizers = make_optimizers(model.named_parameters(), settings.learning_rate)
    state = restore(model, optimizers, checkpoint) if checkpoint.exists() else LoopState()
    started, saved, base = time.perf_counter(), time.perf_counter(), state.elapsed_s
    bar = track(description=description, total=settings.steps, initial=state.step, unit="step")
    for step in range(state.step, settings.steps):
        loss = _optimizer_step(model, optimizers, compute_loss(step), settings, step)
        state.step, state.elapsed_s = step + 1, base + time.perf_counter() - started
        bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        bar.update()
        if state.step % settings.evaluate_every_steps == 0 or state.step == settings.steps:
            row = {"step": state.step, "loss": loss, "elapsed_s": state.elapsed_s, **evaluate()}
            state.history.append(row)
            bar.write("  ".join(f"{k} {v:.4g}" for k, v in row.items()))
        if time.perf_counter() - saved > settings.save_every_s or state.step == settings.steps:
            save(model, optimizers, state, checkpoint)
            saved = time.perf_counter()
    bar.close()
    return state


def _optimizer_step(
    model: nn.Module, optimizers: list, loss: Tensor, settings: LoopSettings, step: int
) -> float:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, settings)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return float(loss.detach())


def save(model: nn.Module, optimizers: list, state: LoopState, path: Path) -> None:
    """Write parameters, optimizer state and progress into one safetensors file, atomically."""
    tensors = {f"model/{name}": p.detach() for name, p in model.named_parameters()}
    for index, optimizer in enumerate(optimizers):
        for parameter, slots in optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                tensors[f"optimizer/{index}/{parameter}/{slot}"] = torch.as_tensor(value)
    tensors = {name: value.contiguous().clone() for name, value in tensors.items()}
    progress = {"step": state.step, "elapsed_s": state.elapsed_s, "history": state.history}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"progress": json.dumps(progress)})


def restore(model: nn.Module, optimizers: list, path: Path) -> LoopState:
    """Load what `save` wrote into `model` and `optimizers` and return the progress."""
    slots: list[dict] = [{} for _ in optimizers]
    parameters = dict(model.named_parameters())
    with safe_open(path, framework="pt") as file, torch.no_grad():
        progress = json.loads(file.metadata()["progress"])
        for name in file.keys():  # noqa: SIM118  (safe_open has no iterator)
            kind, _, rest = name.partition("/")
            if kind == "model":
                parameters[rest].copy_(file.get_tensor(name))
            else:
                index, parameter, slot = rest.split("/")
                slots[int(index)].setdefault(int(parameter), {})[slot] = file.get_tensor(name)
    for optimizer, state in zip(optimizers, slots, strict=True):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return LoopState(**progress)
