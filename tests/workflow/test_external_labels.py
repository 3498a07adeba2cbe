"""Text of another engine is labelled by prefills alone: the same labels as our own text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blockpilot.records import (
    CONVERSATIONS,
    PAIRS,
    PROMPTS,
    SWEEP,
    TRAJECTORIES,
    read_table,
)

DATASETS = ("arithmetic", "code", "prose")
KEY = ["prompt_id", "seed"]
# Other prompts share a batch here: in float32 a near-tie may fall the other way.
LEAST_EQUAL_SHARE = 0.9


@pytest.fixture(scope="module")
def written(smoke) -> pd.DataFrame:
    """Return the first turns of the smoke run with the text that was decoded at T = 0."""
    folder = smoke / "results/smoke"
    prompts = pd.concat([read_table(folder / f"prompts/{d}.parquet", PROMPTS) for d in DATASETS])
    sources = [read_table(folder / f"conversations/{d}.parquet", CONVERSATIONS) for d in DATASETS]
    turns = pd.concat(sources)[["conversation_id", "turns"]]
    texts = read_table(folder / "trajectories/T0.parquet", TRAJECTORIES)
    first = prompts[prompts["turn"] == 0].merge(turns, on="conversation_id")
    return first.merge(texts, on="prompt_id")


@pytest.fixture(scope="module")
def labelled(make_checkout, run_to_end, written) -> Path:
    """Return the results of labelling those texts, given as token ids, in a fresh checkout."""
    checkout = make_checkout("external")
    with (checkout / "theirs.jsonl").open("w", encoding="utf-8") as lines:
        for row in written.itertuples():
            record = {"prompt": row.turns[0], "response": row.output_ids.tolist()}
            lines.write(json.dumps(record) + "\n")
    overrides = ["prompts.datasets.responses.path=theirs.jsonl", "decode.max_new_tokens=32"]
    run_to_end(checkout, "label", experiment="external", overrides=overrides)
    return checkout / "results/external"


def test_the_text_is_taken_as_it_is(labelled, written) -> None:
    found = read_table(labelled / "trajectories/T0.parquet", TRAJECTORIES)
    both = found.merge(written, on=KEY, suffixes=("", "_ours"), validate="one_to_one")
    assert len(both) == len(found) == len(written)
    assert set(found["source"]) == {"external"}
    for column in ("output_ids", "stop_reason"):
        for theirs, ours in zip(both[column], both[f"{column}_ours"], strict=True):
            assert list(theirs) == list(ours)
    # The target chose these tokens in batches; a teacher-forced pass may round differently.
    assert found["greedy_share"].mean() > 0.99
    for column in ("prefill_logits", "prefill_hidden"):
        ours = np.stack(both[f"{column}_ours"])
        np.testing.assert_allclose(np.stack(both[column]), ours, rtol=1e-3, atol=1e-3)


def test_its_labels_are_those_of_the_decoded_text(labelled, smoke) -> None:
    for path in sorted((labelled / "sweep/T0").glob("B*.parquet")):
        theirs = read_table(path, SWEEP)
        ours = read_table(smoke / "results/smoke/sweep/T0" / path.name, SWEEP)
        both = theirs.merge(ours, on=KEY, suffixes=("", "_ours"), validate="one_to_one")
        assert len(both) == len(theirs) > 0
        assert set(theirs["method"]) == {"replay"}
        assert theirs["equals_ar"].isna().all()
        equal = [list(r.num_committed) == list(r.num_committed_ours) for r in both.itertuples()]
        assert np.mean(equal) >= LEAST_EQUAL_SHARE, path.name
    pairs = read_table(labelled / "pairs/T0.parquet", PAIRS)
    ours = read_table(smoke / "results/smoke/pairs/T0.parquet", PAIRS)
    both = pairs.merge(ours, on=KEY, suffixes=("", "_ours"), validate="one_to_one")
    assert len(both) == len(pairs) > 0
    equal = both["best_block_size"] == both["best_block_size_ours"]
    assert equal.mean() >= LEAST_EQUAL_SHARE


def test_the_run_stops_where_it_was_asked_to(labelled) -> None:
    names = {path.name for path in labelled.iterdir()}
    assert names == {
        "benchmarks",
        "conversations",
        "logs",
        "pairs",
        "prompts",
        "sweep",
        "trajectories",
    }
