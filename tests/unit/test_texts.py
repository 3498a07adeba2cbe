"""What the decoded texts are like: lengths and ends by group."""

from __future__ import annotations

import pandas as pd
import pytest
from group_cases import make_prompts

from blockpilot.errors import BlockPilotError
from blockpilot.texts import length_counts

TEXT_PROMPTS = pd.concat(
    [
        make_prompts(2, "words", "prose"),
        make_prompts(2, split="train"),
        make_prompts(1, "sums2"),
        make_prompts(1, "poems", "prose"),
    ],
    ignore_index=True,
)


def make_texts():
    """Return a response per prompt, the last two cut off after three tokens."""
    return pd.DataFrame(
        {
            "prompt_id": TEXT_PROMPTS["prompt_id"],
            "seed": 0,
            "output_ids": [[1], [1], [7], [7, 8], [7, 8, 9], [7, 8, 9]],
            "stop_reason": ["stop"] * 4 + ["length"] * 2,
        }
    )


def test_lengths_are_counted_by_hand():
    table = length_counts(make_texts(), TEXT_PROMPTS, ["poems"])
    assert table.columns.tolist() == ["group", "output_tokens", "stop_reason", "count"]
    assert table.to_numpy().tolist() == [
        ["arithmetic", 1, "stop", 1],
        ["arithmetic", 2, "stop", 1],
        ["arithmetic", 3, "length", 1],
        ["prose", 1, "stop", 2],
        ["poems", 3, "length", 1],
    ]
    assert length_counts(make_texts(), TEXT_PROMPTS)["group"].unique().tolist() == [
        "arithmetic",
        "prose",
    ]


def test_equal_lengths_with_other_ends_stay_apart():
    texts = make_texts().assign(output_ids=[[1, 2]] * 6)
    table = length_counts(texts, TEXT_PROMPTS)
    assert table["stop_reason"].tolist() == ["length", "stop", "length", "stop"]
    assert table["count"].tolist() == [1, 2, 1, 2]


def test_texts_of_unknown_prompts_are_an_error():
    with pytest.raises(BlockPilotError, match="prompt_id is 'words-01'"):
        length_counts(make_texts(), TEXT_PROMPTS.drop(index=1))
