"""Labels from sweeps: the best of the candidates, for every radius."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.labels import make_pairs, relabel
from blockpilot.records import PAIRS, write_table

SIZES = (3, 4, 5)


def make_sweeps(taus: dict[str, list[float]], sizes=(2, 3, 4, 5)) -> list[pd.DataFrame]:
    """Return one sweep table per block size, their rows in different orders."""
    return [
        pd.DataFrame(
            [
                {"prompt_id": prompt_id, "seed": 0, "block_size": size, "tau": values[index]}
                for prompt_id, values in (taus.items() if index % 2 else reversed(taus.items()))
            ]
        )
        for index, size in enumerate(sizes)
    ]


def make_labels(taus: dict[str, list[float]], sweeps=None, candidates=SIZES) -> pd.DataFrame:
    ids = list(taus)
    trajectories = pd.DataFrame(
        {
            "prompt_id": ids,
            "seed": 0,
            "prefill_logits": [np.full(2, i, np.float32) for i in range(len(ids))],
            "prefill_hidden": [np.full(2, -i, np.float32) for i in range(len(ids))],
        }
    )
    prompts = pd.DataFrame({"prompt_id": ids, "split": "train", "domain": ids})
    return make_pairs(trajectories, sweeps or make_sweeps(taus), prompts, list(candidates))


TAUS = {
    "clear": [9.0, 1.0, 1.5, 1.25],  # 2 is the best swept, but no candidate
    "tie": [1.0, 2.0, 1.5, 2.0],
    "flat": [1.0, 1.0, 1.0, 1.0],
    "last": [1.0, 1.0, 1.5, 1.75],
}


def test_labels_are_the_best_of_the_candidates_and_the_smallest_on_ties(tmp_path) -> None:
    frame = make_labels(TAUS).set_index("prompt_id")
    assert frame["best_block_size"].to_dict() == {"clear": 4, "tie": 3, "flat": 3, "last": 5}
    assert frame["class_index"].to_dict() == {"clear": 1, "tie": 0, "flat": 0, "last": 2}
    assert frame["best_block_size_swept"].to_dict() == {"clear": 2, "tie": 3, "flat": 2, "last": 5}
    assert frame["is_tie"].to_dict() == {"clear": False, "tie": True, "flat": True, "last": False}
    for index, prompt_id in enumerate(TAUS):
        row = frame.loc[prompt_id]
        assert (list(row["block_sizes"]), list(row["candidates"])) == ([2, 3, 4, 5], [3, 4, 5])
        assert list(row["tau_by_block_size"]) == TAUS[prompt_id]
        assert row["prefill_logits"].tolist() == [index, index]
        assert row["prefill_hidden"].tolist() == [-index, -index]
        assert row["domain"] == prompt_id
    write_table(tmp_path / "pairs.parquet", make_labels(TAUS), PAIRS)


def test_requests_without_rounds_have_no_label() -> None:
    frame = make_labels({**TAUS, "silent": [float("nan")] * 4})
    assert sorted(frame["prompt_id"]) == sorted(TAUS)


def test_an_incomplete_sweep_is_named() -> None:
    sweeps = make_sweeps(TAUS)
    sweeps[2] = sweeps[2][sweeps[2]["prompt_id"] != "tie"]
    with pytest.raises(BlockPilotError, match=r"1 of 4 prompts were not swept .*\('tie', 0\)"):
        make_labels(TAUS, sweeps)


def test_a_candidate_that_was_not_swept_is_named() -> None:
    with pytest.raises(BlockPilotError, match=r"candidates \[6, 7\] were not swept") as error:
        make_labels(TAUS, candidates=(3, 6, 7))
    assert "sweep.extra_block_sizes" in str(error.value)


def test_another_radius_relabels_without_decoding() -> None:
    frame = make_labels(TAUS)
    wide = relabel(frame, [2, 3, 4, 5]).set_index("prompt_id")
    assert wide["best_block_size"].to_dict() == {"clear": 2, "tie": 3, "flat": 2, "last": 5}
    assert wide["class_index"].to_dict() == {"clear": 0, "tie": 1, "flat": 0, "last": 3}
    assert wide["is_tie"].to_dict() == {"clear": False, "tie": True, "flat": True, "last": False}
    assert [list(own) for own in wide["candidates"]] == [[2, 3, 4, 5]] * 4
    pd.testing.assert_frame_equal(relabel(relabel(frame, [3, 4]), list(SIZES)), frame)


def test_another_radius_needs_swept_sizes() -> None:
    with pytest.raises(BlockPilotError, match=r"candidates \[6\] were not swept"):
        relabel(make_labels(TAUS), [4, 5, 6])
