"""Every experiment composes, and what cannot work is refused before the first job."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockpilot.config import check_config, compose_config, sort_keys, swept_block_sizes
from blockpilot.config_rules import RULES
from blockpilot.errors import BlockPilotError

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch) -> None:
    """Paths in experiments are relative to the repository."""
    monkeypatch.chdir(ROOT)


def compose(*overrides: str, experiment: str = "pocket") -> dict:
    return compose_config(CONF, experiment, list(overrides))


def refusal(*overrides: str, experiment: str = "pocket") -> str:
    with pytest.raises(BlockPilotError) as error:
        compose(*overrides, experiment=experiment)
    return str(error.value)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment, tmp_path) -> None:
    responses = tmp_path / "responses.jsonl"
    responses.write_text('{"prompt": "a", "response": "b"}\n')
    overrides = {"external": [f"prompts.datasets.responses.path='{responses}'"]}
    config = compose(*overrides.get(experiment, []), experiment=experiment)
    assert config["run"] == experiment
    assert config["decode"]["variants"]
    assert config["prompts"]["datasets"]


def test_the_required_experiments_exist() -> None:
    assert {"pocket", "smoke"} <= set(EXPERIMENTS)


def test_an_experiment_overlays_and_an_override_wins() -> None:
    assert compose()["decode"]["max_new_tokens"] == 192
    assert compose(experiment="smoke")["decode"]["max_new_tokens"] == 32
    config = compose("decode.max_new_tokens=17", "run=mine", experiment="smoke")
    assert config["decode"]["max_new_tokens"] == 17
    assert config["run"] == "mine"


def test_the_result_is_plain_and_sorted() -> None:
    config = compose()

    def check(value: object) -> None:
        assert type(value) in (dict, list, str, int, float, bool, type(None))
        if isinstance(value, dict):
            assert list(value) == sorted(value)
        for item in value.values() if isinstance(value, dict) else []:
            check(item)
        for item in value if isinstance(value, list) else []:
            check(item)

    check(config)
    assert "${" not in repr(config)  # interpolations are resolved
    assert sort_keys({"b": [{"d": 1, "c": 2}], "a": 0}) == {"a": 0, "b": [{"c": 2, "d": 1}]}
    assert repr(compose()) == repr(config)


@pytest.mark.parametrize(
    ("override", "shown", "allowed"),
    [
        ("sweep.radius=0", "sweep.radius is 0", "an integer >= 1"),
        ("sweep.radius=1.5", "sweep.radius is 1.5", "an integer >= 1"),
        ("sweep.radius=true", "sweep.radius is True", "an integer >= 1"),
        ("sweep.extra_block_sizes=[4,0]", "sweep.extra_block_sizes is [4, 0]", "integer >= 1"),
        ("decode.variants.T1.temperature=-1", "T1.temperature is -1", "a number from 0 to 10"),
        ("decode.variants.T1.sampling=nope", "T1.sampling is 'nope'", "one of match"),
        ("decode.variants.T1.seeds=[]", "T1.seeds is []", "a list of at least 1"),
        ("decode.dtype=int8", "decode.dtype is 'int8'", "float32, bfloat16, float64"),
        ("decode.dtype=float16", "decode.dtype is 'float16'", "float32, bfloat16, float64"),
        ("decode.max_new_tokens=0", "decode.max_new_tokens is 0", "an integer >= 1"),
        ("selector.features=summery", "selector.features is 'summery'", "raw, softmax, normalized"),
        ("selector.dropout=1", "selector.dropout is 1", "a number from 0 to 0.99"),
        ("selector.width=wide", "selector.width is 'wide'", "an integer >= 1"),
        ("device.threads=0", "device.threads is 0", "an integer >= 1"),
        ("prompts.datasets.code.split=dev", "code.split is 'dev'", "train, validation, test"),
        ("prompts.datasets.code.source=web", "code.source is 'web'", "pocket, human_eval, file"),
        ("run=a/b", "run is 'a/b'", "a folder name"),
        ("run=..", "run is '..'", "a folder name"),
        ("pair.target=''", "pair.target is ''", "a text"),
    ],
)
def test_impossible_values_are_refused(override, shown, allowed) -> None:
    message = refusal(override)
    assert shown in message
    assert allowed in message.split("allowed:")[1]
    assert override.split("=")[0] in message


@pytest.mark.parametrize("name", ["float16", "fp16", "half"])
def test_half_precision_is_refused_with_its_reason(name) -> None:
    message = refusal(f"decode.dtype={name}")
    assert f"decode.dtype is '{name}'" in message
    assert "overflows" in message


@pytest.mark.parametrize(
    ("override", "texts"),
    [
        ("selector.widht=512", ["selector.widht=512", "e.g. selector.width."]),
        ("decode.max_new_token=3", ["decode.max_new_token=3", "e.g. decode.max_new_tokens."]),
        ("+selector.widht=512", ["configuration key is 'selector.widht'", "selector.width"]),
        ("+decode.variants.T0.topp=0.9", ["'decode.variants.T0.topp'", "decode.variants"]),
        ("nonsense=1", ["nonsense", str(CONF)]),
        ("selector.width", ["selector.width"]),
        ("experiment=nope", ["experiment is 'nope'", "pocket, "]),
        ("pair=nope", ["pair is 'nope'", "pocket"]),
        ("decode.max_new_tokens=???", ["decode.max_new_tokens"]),
    ],
)
def test_unknown_keys_and_choices_are_refused(override, texts) -> None:
    message = refusal(override)
    for text in texts:
        assert text in message


def test_an_unknown_experiment_lists_the_known_ones() -> None:
    message = refusal(experiment="pokcet")
    assert "experiment is 'pokcet'; allowed: " in message
    assert all(name in message for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("~decode.dtype", "decode.dtype"),
        ("~sweep.radius", "sweep.radius"),
        ("~decode.variants.T1.seeds", "decode.variants.T1.seeds"),
        ("~prompts.datasets.code.source", "prompts.datasets.code.source"),
        ("+decode.variants.T2={temperature: 2}", "decode.variants.T2.seeds"),
    ],
)
def test_keys_that_were_taken_away_are_named(override, key) -> None:
    assert f"{key} is 'missing'; allowed: " in refusal(override)


def test_data_sets_and_variants_may_be_taken_away() -> None:
    config = compose(
        "~decode.variants.T1",
        "decode.variants.T07=null",
        "~prompts.datasets.human_eval",
        "prompts.datasets.code=null",
        "prompts.out_of_domain=[]",
    )
    assert list(config["decode"]["variants"]) == ["T0", "T1_coupled"]
    assert list(config["prompts"]["datasets"]) == ["arithmetic", "prose"]


def test_an_out_of_domain_set_must_exist() -> None:
    message = refusal("~prompts.datasets.human_eval")
    assert "prompts.out_of_domain is 'human_eval'; allowed: arithmetic, code, prose." in message


def test_what_a_scheme_does_not_allow_stops_the_run(tmp_path) -> None:
    message = refusal("decode.variants.T1.sampling=rejection")
    assert "decode.variants.T1.sampling is 'rejection'" in message
    assert "set sweep.method=live" in message
    compose("decode.variants.T1.sampling=rejection", "sweep.method=live")
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "response": "b"}\n')
    entry = f"+prompts.datasets.mine={{source: responses, domain: mine, path: '{path}'}}"
    assert "not drawn with this project's noise" in refusal(entry)
    others = ["decode.variants.T1_coupled.sampling=match"]
    assert compose(entry, *others)["prompts"]["datasets"]["mine"]["path"] == str(path)
    rejected = ["decode.variants.T1.sampling=rejection", "sweep.method=live"]
    assert "its text depends on the block size" in refusal(entry, *others, *rejected)


@pytest.mark.parametrize("content", [None, ""])
def test_a_prompt_file_must_exist_and_hold_something(content, tmp_path) -> None:
    path = tmp_path / "mine.jsonl"
    if content is not None:
        path.write_text(content)
    entry = f"+prompts.datasets.mine={{source: file, domain: mine, path: '{path}'}}"
    message = refusal(entry)
    assert "prompts.datasets.mine.path is " in message
    assert str(path) in message
    assert "allowed: an existing, non-empty file" in message
    path.write_text('{"prompt": "Hello"}\n')
    assert compose(entry)["prompts"]["datasets"]["mine"]["path"] == str(path)


def test_a_prompt_file_needs_a_path() -> None:
    message = refusal("+prompts.datasets.mine={source: file, domain: mine}")
    assert "prompts.datasets.mine.path is ''" in message


def test_every_section_refuses_a_key_without_a_rule() -> None:
    config = compose()
    check_config(config)
    for section in ("pair", "prompts", "decode", "sweep", "selector", "evaluate", "device"):
        broken = {**config, section: {**config[section], "unheard_of": 1}}
        with pytest.raises(BlockPilotError, match=rf"key is '{section}\.unheard_of'"):
            check_config(broken)
    for pattern in RULES:
        assert pattern.split(".")[0] in config


def test_by_default_sizes_near_and_far_are_swept_besides_the_candidates() -> None:
    assert swept_block_sizes([7, 8, 9], 8, None) == [4, 5, 7, 8, 9, 11, 16]
    assert swept_block_sizes([1, 2, 3], 2, None) == [1, 2, 3, 4, 5]
    assert swept_block_sizes([1, 2], 1, None) == [1, 2, 4]
    assert swept_block_sizes([7, 8, 9], 8, []) == [7, 8, 9]
    assert swept_block_sizes([7, 8, 9], 8, [8, 12, 2]) == [2, 7, 8, 9, 12]
