"""What a walkthrough reads from the artifacts of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.records import ACCEPTANCE, PROMPTS, SWEEP, TRAJECTORIES, write_table
from blockpilot.walkthrough_files import (
    choose_request,
    read_decoder,
    read_requests,
    read_walkthrough,
)

POCKET = Path(__file__).resolve().parents[2] / "workflow" / "resources" / "pocket"
# Prompt, data set, split, rounds at b = 2 and at b = 4; every text has 5 tokens.
REQUESTS = [
    ("aa", "code", "test", [1, 1, 1, 1], [4]),
    ("bb", "code", "test", [2, 2], [4]),
    ("cc", "code", "train", [1, 1, 1, 1], [4]),
    ("dd", "human_eval", "test", [1, 1, 1, 1], [4]),
]


def sweep_row(prompt_id: str, size: int, counts: list[int], **changes) -> dict:
    row = {"prompt_id": prompt_id, "seed": 0, "block_size": size, "method": "replay"}
    row |= {"num_rounds": len(counts), "num_committed": counts, "tau": 4 / len(counts)}
    return row | {"tpot_s": None, "equals_ar": None} | changes


@pytest.fixture
def run(tmp_path) -> Path:
    shared = {"conversation_id": "c", "turn": 0, "text": "?", "input_ids": [1]}
    for dataset in ("code", "human_eval"):
        rows = [
            {"prompt_id": name, "dataset": dataset, "domain": dataset, "split": split} | shared
            for name, own, split, *_ in REQUESTS
            if own == dataset
        ]
        write_table(tmp_path / f"prompts/{dataset}.parquet", rows, PROMPTS)
    text = {"seed": 0, "output_ids": [3, 4, 5, 6, 7], "stop_reason": "stop", "source": "ours"}
    text |= {"greedy_share": 1.0, "prefill_logits": [0.0], "prefill_hidden": [0.0]}
    rows = [text | {"prompt_id": name} for name, *_ in REQUESTS]
    write_table(tmp_path / "trajectories/T0.parquet", rows, TRAJECTORIES)
    for place, size in enumerate((2, 4), start=3):
        rows = [sweep_row(request[0], size, request[place]) for request in REQUESTS]
        write_table(tmp_path / f"sweep/T0/B{size}.parquet", rows, SWEEP)
    # A near-tie gave this decode another text; its rounds are not rounds of ours.
    rows = [sweep_row("bb", 3, [3, 3, 3], method="live", equals_ar=False)]
    write_table(tmp_path / "sweep/T0/B3.parquet", rows, SWEEP)
    rows = [{"prompt_id": "aa", "seed": 0, "block_sizes": [4], "accepted": [[3, 2, 1, 0]]}]
    write_table(tmp_path / "acceptance/T0.parquet", rows, ACCEPTANCE)
    return tmp_path


def test_requests_know_the_spread_of_their_tau(run) -> None:
    requests = read_requests(run, "T0").set_index("prompt_id")
    assert requests["tau_spread"].to_dict() == {"aa": 3.0, "bb": 2.0, "cc": 3.0, "dd": 3.0}
    assert requests["num_tokens"].unique().tolist() == [5]


def test_the_widest_in_domain_test_request_is_chosen(run) -> None:
    requests = read_requests(run, "T0").sort_values("prompt_id", ascending=False)
    assert choose_request(requests, out_of_domain=["human_eval"])["prompt_id"] == "aa"
    assert choose_request(requests)["prompt_id"] == "dd"
    assert choose_request(requests, "cc", seed=0)["prompt_id"] == "cc"


@pytest.mark.parametrize("wanted", [{"prompt_id": "ee"}, {"prompt_id": "aa", "seed": 1}])
def test_unknown_requests_are_refused(run, wanted) -> None:
    with pytest.raises(BlockPilotError, match="Choose a prompt_id and seed"):
        choose_request(read_requests(run, "T0"), **wanted)


def walk_of(run: Path, prompt_id: str):
    request = choose_request(read_requests(run, "T0"), prompt_id)
    return read_walkthrough(run, "T0", request, 100, lambda ids: "".join(map(str, ids)))


def test_a_walkthrough_is_read(run) -> None:
    walk = walk_of(run, "aa")
    assert (walk.prompt_id, walk.seed, walk.prompt) == ("aa", 0, "?")
    assert walk.tokens == list("34567")
    assert walk.num_committed == {2: [1, 1, 1, 1], 4: [4]}
    assert walk.limit_tokens == 100
    assert walk.acceptance.num_accepted(4, 1) == 2


def test_rounds_of_another_text_are_left_out(run) -> None:
    walk = walk_of(run, "bb")
    assert walk.block_sizes == [2, 4] and walk.acceptance is None


def test_a_run_without_sweeps_is_refused(run) -> None:
    with pytest.raises(BlockPilotError, match=r"T1\.parquet does not exist"):
        read_requests(run, "T1")
    (run / "trajectories/T0.parquet").rename(run / "trajectories/T1.parquet")
    with pytest.raises(BlockPilotError, match="T1 has no tables"):
        read_requests(run, "T1")


def test_the_decoder_keeps_special_tokens() -> None:
    decode = read_decoder({"target": "pocket/target", "target_revision": None}, POCKET.parent)
    assert decode([3]) == "<|user|>"


def test_a_damaged_tokenizer_is_named(tmp_path) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(BlockPilotError, match=f"target of the run's pair is '{tmp_path}'"):
        read_decoder({"target": str(tmp_path)})
