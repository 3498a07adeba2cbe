"""Wall-clock timing that waits for the device."""

from __future__ import annotations

import time

import torch


def now_s(device: torch.device) -> float:
    """Return seconds on a monotonic clock after the device has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
