"""What cannot work is refused with key or file, value, what is allowed and the remedy.

Through the command line: settings before the first job, data in the job that first reads it; no
other result is touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd
import pytest

from blockpilot.records import CONVERSATIONS, PAIRS, read_table

TARGET = "workflow/resources/pocket/target"
DRAFT = "workflow/resources/pocket/draft"
CONVERSATIONS_OF_MINE = "results/smoke/conversations/mine.parquet"


@pytest.fixture(scope="module")
def pristine(make_checkout) -> Path:
    """Return a checkout without results."""
    return make_checkout("pristine")


@pytest.fixture
def finished(smoke, tmp_path) -> Path:
    """Return a copy of the finished smoke run, to be damaged."""
    return shutil.copytree(smoke, tmp_path / "finished", symlinks=True)


@pytest.fixture
def refused(run_snakemake, started_jobs, failed_rules, snapshot) -> Callable[..., str]:
    """Return a function that expects a call to fail, in `failing_rule` or before any job."""

    def call(
        checkout: Path,
        *arguments: str,
        failing_rule: str | None = None,
        lost: Collection[str] = (),
        **options,
    ) -> str:
        before = snapshot(checkout)
        done = run_snakemake(checkout, *arguments, cores=1, **options)
        message = done.stdout + done.stderr
        assert done.returncode != 0, message[-3000:]
        assert "Traceback" not in message, message[-3000:]
        assert len(started_jobs(done)) == bool(failing_rule), message[-3000:]
        assert failed_rules(done) == ([failing_rule] if failing_rule else []), message[-3000:]
        # Snakemake deletes the outputs of a job before it runs.
        assert snapshot(checkout) == {k: v for k, v in before.items() if k not in lost}
        return message

    return call


def says(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message, f"{part!r} is missing in:\n{message[-3000:]}"


def trained_block_size(checkout: Path) -> int:
    return json.loads((checkout / DRAFT / "config.json").read_text())["block_size"]


# Settings


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("selector.widht=3", ("selector.widht", "must exist in", "selector.width")),
        ("+selector.widht=3", ("'selector.widht'", "allowed: selector.width", "Remove it")),
        ("pair=nope", ("pair is 'nope'", "allowed: pocket", "conf/pair/nope.yaml")),
        ("sweep.radius=0", ("sweep.radius is 0", "an integer >= 1", "Set it with")),
        (
            "decode.dtype=float16",
            ("decode.dtype is 'float16'", "float32, bfloat16, float64", "overflows", "acceptance"),
        ),
    ],
)
def test_impossible_settings_stop_before_the_first_job(pristine, refused, override, parts) -> None:
    says(refused(pristine, overrides=[override]), *parts)


def test_an_unknown_experiment_stops_before_the_first_job(pristine, refused) -> None:
    message = refused(pristine, experiment="smok")
    says(message, "experiment is 'smok'", "pocket, smoke", "conf/experiment/smok.yaml")


def test_a_radius_that_leaves_sizes_below_one_stops_before_the_first_job(pristine, refused) -> None:
    size = trained_block_size(pristine)
    message = refused(pristine, overrides=[f"sweep.radius={size}"])
    says(message, f"sweep.radius is {size}", f"1 to {size - 1}", f"trained at block size {size}")


def test_a_length_beyond_the_context_stops_before_the_first_job(pristine, refused) -> None:
    context = json.loads((pristine / TARGET / "config.json").read_text())["max_position_embeddings"]
    message = refused(pristine, overrides=[f"decode.max_new_tokens={context}"])
    says(message, f"decode.max_new_tokens is {context}", f"allowed: 1 to {context - 1}", "Lower it")


# The pair


def edit_draft(checkout: Path, folder: Path, **changes) -> Path:
    """Copy the shipped draft and change keys of its config.json, wherever they are."""
    shutil.copytree(checkout / DRAFT, folder)
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        home = config if key in config else config["dflash_config"]
        assert key in home
        home[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("key", "change", "allowed"),
    [
        ("vocab_size", lambda target: target["vocab_size"] + 1, "{vocab_size} with this target"),
        ("hidden_size", lambda target: target["hidden_size"] * 2, "{hidden_size} with this target"),
        ("mask_token_id", lambda target: target["vocab_size"], "0 to "),
        (
            "target_layer_ids",
            lambda target: [1, target["num_hidden_layers"]],
            "one or more layers of 0 to ",
        ),
    ],
)
def test_a_draft_that_does_not_fit_stops_before_the_first_job(
    pristine, refused, tmp_path, key, change, allowed
) -> None:
    target = json.loads((pristine / TARGET / "config.json").read_text())
    value = change(target)
    draft = edit_draft(pristine, tmp_path / "draft", **{key: value})
    message = refused(pristine, overrides=[f"pair.draft={draft}"])
    says(message, f"{draft}: {key} is {value}", f"allowed: {allowed.format(**target)}")
    says(message, "Use the draft that was trained for this target")


def test_a_draft_that_is_not_there_stops_before_the_first_job(pristine, refused) -> None:
    message = refused(pristine, overrides=["pair.draft=no/such/draft"])
    says(message, "pair.draft", "no/such/draft/config.json", "check the path")


def test_a_truncated_draft_is_named(finished, refused, swept) -> None:
    weights = finished / DRAFT / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    # The sizes that share a job (sweep.candidates_per_job of the experiment).
    outputs = [f"smoke/sweep/T0/B{size}.parquet" for size in swept[:5]]
    message = refused(
        finished, f"results/{outputs[0]}", failing_rule="sweep_candidates", lost=outputs
    )
    says(message, f"{DRAFT}/model.safetensors is not a whole safetensors file")
    says(message, "Copy or download the checkpoint again")


# Prompt files


def of_file(path: str) -> str:
    return f"+prompts.datasets.mine={{source: file, path: {path}, domain: mine, split: null}}"


def write_lines(path: Path, *records: object) -> None:
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_a_prompt_file_is_read_through_an_override(pristine, run_to_end) -> None:
    write_lines(pristine / "good.jsonl", {"prompt": "Say hello."}, {"prompt": ["One.", "Two."]})
    run_to_end(pristine, CONVERSATIONS_OF_MINE, overrides=[of_file("good.jsonl")])
    rows = read_table(pristine / CONVERSATIONS_OF_MINE, CONVERSATIONS)
    assert sorted(map(list, rows["turns"])) == [["One.", "Two."], ["Say hello."]]
    assert set(rows["domain"]) == set(rows["dataset"]) == {"mine"}
    (pristine / CONVERSATIONS_OF_MINE).unlink()


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_prompt_file_stops_before_the_first_job(
    pristine, refused, content
) -> None:
    path = pristine / "empty.jsonl"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    message = refused(pristine, overrides=[of_file("empty.jsonl")])
    says(message, "prompts.datasets.mine.path is 'empty.jsonl'", "an existing, non-empty file")
    says(message, "Correct the path or fill it")


@pytest.mark.parametrize(
    ("second_line", "parts"),
    [
        ({"prompt": " \t "}, ("prompt is ' \\t '", "more than whitespace", "Write it or remove")),
        ({"question": "Why?"}, ("column is 'prompt'", "allowed: question", "Set column")),
        (b'{"prompt": "caf\xe9"}', (r"is b'\xe9'", "UTF-8 text", "Save the file as UTF-8")),
        (b"Why?", ("is 'Why?'", "a JSON object", "one prompt on every line")),
    ],
    ids=["whitespace", "column", "encoding", "no JSON"],
)
def test_a_bad_line_of_a_prompt_file_is_named(pristine, refused, second_line, parts) -> None:
    write_lines(pristine / "bad.jsonl", {"prompt": "Say hello."}, second_line)
    message = refused(
        pristine,
        CONVERSATIONS_OF_MINE,
        overrides=[of_file("bad.jsonl")],
        failing_rule="collect_conversations",
    )
    says(message, "bad.jsonl: line 2", *parts)


def test_a_prompt_that_does_not_fit_the_context_is_named(finished, run_to_end, refused) -> None:
    context = json.loads((finished / TARGET / "config.json").read_text())["max_position_embeddings"]
    write_lines(finished / "long.jsonl", {"prompt": "word " * context})
    overrides = [of_file("long.jsonl")]
    run_to_end(finished, CONVERSATIONS_OF_MINE, overrides=overrides)
    message = refused(
        finished,
        "results/smoke/prompts/mine.parquet",
        overrides=overrides,
        failing_rule="extend_conversations",
    )
    says(message, "mine, conversation", "turn 0", f"at most {context}, the target's context")
    says(message, "Shorten the prompt")


def test_a_length_that_does_not_fit_the_context_stops_before_decoding(finished, refused) -> None:
    context = json.loads((finished / TARGET / "config.json").read_text())["max_position_embeddings"]
    length = context - 4
    message = refused(
        finished,
        "results/smoke/trajectories/T0.parquet",
        overrides=[f"decode.max_new_tokens={length}"],
        failing_rule="decode_trajectories",
        lost=["smoke/trajectories/T0.parquet"],
    )
    says(message, "data set", "prompt tokens + max_new_tokens", f" + {length}'")
    says(message, f"at most {context}", "lower decode.max_new_tokens")


# Damaged results


def test_a_truncated_table_is_named_and_its_remedy_works(finished, refused, run_to_end) -> None:
    pairs = finished / "results/smoke/pairs/T0.parquet"
    before = read_table(pairs, PAIRS)
    table = f"results/smoke/sweep/T0/B{trained_block_size(finished)}.parquet"
    content = (finished / table).read_bytes()
    (finished / table).write_bytes(content[: len(content) // 2])
    message = refused(finished, failing_rule="merge_pairs", lost=["smoke/pairs/T0.parquet"])
    says(message, f"{table} is not a whole Parquet file", "Delete it and run snakemake again")
    (finished / table).unlink()
    run_to_end(finished, "results/smoke/pairs/T0.parquet")
    pd.testing.assert_frame_equal(read_table(pairs, PAIRS), before, check_exact=True)
