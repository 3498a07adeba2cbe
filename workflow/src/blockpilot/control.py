"""The control of replay: a sample labelled both ways in one job, compared and timed."""

from __future__ import annotations

import pandas as pd

from blockpilot.progress import track
from blockpilot.replay import Replay
from blockpilot.sweep import Decoder, live_row, sweep_replay
from blockpilot.timing import now_s
from blockpilot.trajectories import decode_trajectories

# Replay is timed before and after the live decodes, which share the machine's moods with it.
REPEATS = 2


class Control:
    """Labels a sample of requests live and by replay.

    Args:
        decode: The live loop, with the variant that replay counts rounds for.
        replay: Of the same pair and sampling.
        block_sizes: Swept sizes.
        batch_size: Of trajectories.
        token_budget: Of replay.
    """

    def __init__(
        self,
        decode: Decoder,
        replay: Replay,
        block_sizes: list[int],
        batch_size: int,
        token_budget: int,
    ) -> None:
        self.decode, self.replay = decode, replay
        self.block_sizes, self.batch_size, self.token_budget = block_sizes, batch_size, token_budget
        self.spent_s: dict[tuple[str, str], float] = {}

    def run(self, requests: pd.DataFrame) -> tuple[list[dict], list[dict]]:
        """Return the rows of `control` and of `cost` for some requests."""
        self._replay(requests)  # warm-up
        self.spent_s.clear()
        rows = self._replay(requests)
        rows += self._live(requests)
        self._replay(requests)
        costs = [
            {
                "method": method,
                "part": part,
                "num_requests": len(requests),
                "num_block_sizes": len(self.block_sizes),
                "total_s": total_s / (REPEATS if method == "replay" else 1),
            }
            for (method, part), total_s in self.spent_s.items()
        ]
        return rows, costs

    def _replay(self, requests: pd.DataFrame) -> list[dict]:
        """Decode the trajectories again, for their cost, then replay the given ones."""
        target, variant = self.decode.target, self.decode.variant
        clock_s = now_s(target.device)
        for seed, own in requests.groupby("seed"):
            trajectories = decode_trajectories(
                target,
                own,
                seeds=[seed],
                sampling=variant.sampling,
                max_new_tokens=variant.max_new_tokens,
                stop_ids=self.decode.stop_ids,
                batch_size=self.batch_size,
            )
            list(trajectories)
        self._spend("replay", "trajectories", now_s(target.device) - clock_s)
        self.replay.spent_s.clear()
        sizes, most = self.block_sizes, variant.max_new_tokens
        rows = sweep_replay(self.replay, requests, sizes, most, self.token_budget)
        for part, seconds in self.replay.spent_s.items():
            self._spend("replay", part, seconds)
        return [row for own in rows for row in own]

    def _live(self, requests: pd.DataFrame) -> list[dict]:
        rows = []
        with track(description="control", total=len(requests), unit="prompt") as bar:
            for request in requests.itertuples(index=False):
                for block_size in self.block_sizes:
                    clock_s = now_s(self.decode.target.device)
                    rows.append(live_row(self.decode, request, block_size))
                    spent_s = now_s(self.decode.target.device) - clock_s
                    self._spend("live", f"b = {block_size}", spent_s)
                bar.update()
        return rows

    def _spend(self, method: str, part: str, seconds: float) -> None:
        self.spent_s[method, part] = self.spent_s.get((method, part), 0.0) + seconds
