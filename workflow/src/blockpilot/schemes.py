"""Verification schemes side by side: the same prompts, seeds and sizes under each of them.

`match` and `coupled` share one text, so both are replayed from its trajectory; the text of
`rejection` depends on the block size, so it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as changed

import pandas as pd

from blockpilot.pair import Pair
from blockpilot.replay import Replay
from blockpilot.sampling import Sampling
from blockpilot.sweep import Decoder, DecodeVariant, sweep_live, sweep_replay


class SchemeComparison:
    """Counts rounds under every scheme at one temperature.

    Args:
        pair: A loaded pair.
        variant: Temperature, truncation and `draft_temperature`; its scheme is ignored.
        memory_mb: Of replay.
        token_budget: Of replay.
    """

    def __init__(
        self, pair: Pair, variant: DecodeVariant, memory_mb: int, token_budget: int
    ) -> None:
        self.pair, self.variant = pair, variant
        self.memory_mb, self.token_budget = memory_mb, token_budget

    def replayed(
        self, requests: pd.DataFrame, block_sizes: Sequence[int], scheme: str, **changes
    ) -> Iterator[dict]:
        """Yield rows of `schemes` for `match` or `coupled`, `changes` applied to the sampling."""
        sampling = changed(self.variant.sampling, scheme=scheme, **changes)
        replay = Replay(self.pair.target, self.pair.draft, sampling, self.memory_mb)
        most = self.variant.max_new_tokens
        rows = sweep_replay(replay, requests, block_sizes, most, self.token_budget)
        yield from _scheme_rows(rows, sampling)

    def decoded(self, requests: pd.DataFrame, block_sizes: Sequence[int]) -> Iterator[dict]:
        """Yield rows of `schemes` for `rejection`, its draft at the target's temperature."""
        sampling = changed(self.variant.sampling, scheme="rejection", draft_temperature=None)
        variant = changed(self.variant, sampling=sampling)
        decode = Decoder(self.pair.target, self.pair.draft, variant, self.pair.stop_ids)
        yield from _scheme_rows(sweep_live(decode, requests, block_sizes), sampling)


def _scheme_rows(rows: list[list[dict]], sampling: Sampling) -> Iterator[dict]:
    warmth = sampling.draft_temperature or sampling.temperature
    facts = {
        "scheme": sampling.scheme,
        "draft_temperature": None if sampling.scheme == "match" else warmth,
    }
    for own in rows:
        for row in own:
            yield {k: v for k, v in row.items() if k not in ("tpot_s", "equals_ar")} | facts
