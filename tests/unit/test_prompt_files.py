"""Files of prompts and responses: formats, columns, repeats; files and settings refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.prompt_files import check_external, read_records
from blockpilot.prompts import collect_conversations, hash_turns


def read_file(path, source="file", **settings):
    return collect_conversations("mine", {"source": source, "path": str(path), **settings})


def turns_of(rows):
    return [row["turns"] for row in rows]


def test_text_file(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes("\ufeffWhat is 2+2?\r\n  Schläft sie? \r\n\r\n".encode())
    rows = read_file(path)
    assert turns_of(rows) == [["What is 2+2?"], ["  Schläft sie? "]]
    assert {row["domain"] for row in rows} == {"mine"}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_columns_hold_one_or_several_turns(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    records = [{"q": ["a", "b"], "kind": "chat"}, {"q": ["c\u2028d"], "kind": "math"}]
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        records[1]["q"] = "c\u2028d"
        path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n")
    rows = read_file(path, column="q", domain_column="kind")
    assert turns_of(rows) == [["a", "b"], ["c\u2028d"]]
    assert [row["domain"] for row in rows] == ["chat", "math"]
    assert {row["domain"] for row in read_file(path, column="q", domain="x")} == {"x"}


def test_repeated_conversations_are_kept_once_and_counted(tmp_path, capsys):
    path = tmp_path / "p.txt"
    path.write_text("a\nb\na\na\nc\n")
    assert turns_of(read_file(path, count=3)) == [["a"], ["b"], ["c"]]
    assert "warning: mine: dropped 2 repeated conversations" in capsys.readouterr().err


# Errors: place, value, allowed, remedy

LINE_ERRORS = [
    ("p.txt", b"a\n \nb\n", {}, "line 2: prompt", "' '", "more than whitespace"),
    ("p.txt", b"a\n\nb\n", {}, "line 2: prompt", "''", "more than whitespace"),
    ("p.txt", b"a\nb\xff\n", {}, "line 2", r"b'\xff'", "UTF-8"),
    ("p.txt", b"a\n", {"column": "q"}, "line 1: column", "'q'", "allowed: prompt."),
    ("p.jsonl", b'{"prompt": "a"}\n{"prompt"\n', {}, "line 2", "'{\"prompt\"'", "a JSON object"),
    ("p.jsonl", b'{"prompt": "a"}\n"a"\n', {}, "line 2", "'\"a\"'", "a JSON object"),
    ("p.json", b'[{"prompt": "a"}]', {}, "line 1", "", "a JSON object"),
    ("p.jsonl", b'{"prompt": "\xe4"}', {}, "line 1", r"b'\xe4'", "UTF-8"),
    ("p.jsonl", b'{"x": "a", "y": 1}', {}, "line 1: column", "'prompt'", "allowed: x, y."),
    ("p.jsonl", b"{}", {}, "line 1: column", "'prompt'", "allowed: none."),
    ("p.jsonl", b'{"prompt": "\\n\\t"}', {}, "line 1: prompt", r"'\n\t'", "whitespace"),
    ("p.jsonl", b'{"prompt": "\\ud800"}', {}, "line 1: prompt", r"'\ud800'", "a text"),
    ("p.jsonl", b'{"prompt": 7}', {}, "line 1: prompt", "7", "a list of such texts"),
    ("p.jsonl", b'{"prompt": null}', {}, "line 1: prompt", "None", "a list of such texts"),
    ("p.jsonl", b'{"prompt": []}', {}, "line 1: prompt", "[]", "a list of such texts"),
    ("p.jsonl", b'{"prompt": ["a", 7]}', {}, "line 1: prompt[1]", "7", "a list of such texts"),
    ("p.jsonl", b'{"prompt": ["a", " "]}', {}, "line 1: prompt[1]", "' '", "whitespace"),
    (
        "p.jsonl",
        b'{"prompt": "a", "d": 3}',
        {"domain_column": "d"},
        "line 1: d",
        "3",
        "a text",
    ),
]


@pytest.mark.parametrize(("name", "content", "settings", "place", "value", "allowed"), LINE_ERRORS)
def test_errors_name_file_line_value_and_allowed(
    tmp_path, name, content, settings, place, value, allowed
):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BlockPilotError) as error:
        read_file(path, **settings)
    message = str(error.value)
    assert message.startswith(f"{path}: {place} is {value}")
    assert allowed in message[message.index("; allowed: ") :]
    assert message.split(". ")[-1].rstrip(".")  # the remedy


def test_errors_of_whole_files(tmp_path):
    for name, content, value, allowed in (
        ("p.csv", b"a", "suffix is '.csv'", ".jsonl, .json, .parquet, .txt"),
        ("none.txt", None, "is 'missing'", "an existing file"),
        ("empty.txt", b"", "prompts is 0", ">= 1"),
        ("empty.jsonl", b"\n\n", "prompts is 0", ">= 1"),
        ("p.parquet", b"PAR", "is ", "a whole Parquet file"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BlockPilotError) as error:
            read_file(path)
        assert str(path) in str(error.value)
        assert value in str(error.value)
        assert f"allowed: {allowed}" in str(error.value)


def test_errors_of_parquet_rows(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"q": ["a", None]}), path)
    with pytest.raises(BlockPilotError, match=r"p\.parquet: column is 'prompt'; allowed: q\."):
        read_file(path)
    with pytest.raises(BlockPilotError, match=r"p\.parquet: row 2: q is None; allowed: a text"):
        read_file(path, column="q")
    pq.write_table(pa.table({"q": pa.array([], pa.string())}), path)
    with pytest.raises(BlockPilotError, match=r"p\.parquet: prompts is 0; allowed: >= 1"):
        read_file(path, column="q")


POCKET = {"source": "pocket", "domain": "code", "seed": 1, "count": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"d\.source is None; allowed: pocket, human_eval, file, responses\."),
        ({"source": "web"}, r"d\.source is 'web'; allowed: pocket"),
        ({"source": "file"}, r"d\.path is None; allowed: a value\. The source 'file'"),
        ({"source": "responses"}, r"d\.path is None; allowed: a value\. The source 'responses'"),
        (POCKET | {"seed": None}, r"d\.seed is None"),
        (POCKET | {"domain": "law"}, r"d\.domain is 'law'; allowed: arithmetic, code, prose\."),
        (POCKET | {"split": "dev"}, r"d\.split is 'dev'; allowed: null, train, validation, test\."),
        (POCKET | {"count": 0}, r"d\.count is 0; allowed: 1 to "),
        ({"source": "human_eval", "count": 165}, r"d\.count is 165; allowed: 1 to 164"),
    ],
)
def test_settings_that_cannot_be_used(settings, message):
    with pytest.raises(BlockPilotError, match=message):
        collect_conversations("d", settings)


# Responses of another engine


def write_lines(path, records):
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_responses_give_conversations_of_one_turn(tmp_path, capsys):
    records = [
        {"prompt": "a", "response": "x"},
        {"prompt": "b", "response": [1, 2]},
        {"prompt": "a", "response": "y"},
    ]
    path = write_lines(tmp_path / "r.jsonl", records)
    rows = read_file(path, "responses")
    assert turns_of(rows) == [["a"], ["b"]]
    assert [row["conversation_id"] for row in rows] == [hash_turns(["a"]), hash_turns(["b"])]
    assert rows[:1] == read_file(path, "responses", count=1) == read_file(path)[:1]
    assert "warning: mine: dropped 1 repeated conversations" in capsys.readouterr().err


def test_responses_take_the_settings_of_files(tmp_path):
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"q": ["a", "b"], "kind": ["chat", "code"], "text": ["x", "y"]}), path)
    columns = {"column": "q", "response_column": "text"}
    rows = read_file(path, "responses", **columns, domain_column="kind", split="test")
    assert turns_of(rows) == [["a"], ["b"]]
    assert [(row["domain"], row["split"]) for row in rows] == [("chat", "test"), ("code", "test")]
    assert {row["domain"] for row in read_file(path, "responses", **columns, domain="x")} == {"x"}
    with pytest.raises(BlockPilotError, match=r"r\.parquet: column is 'response'; allowed: q, kin"):
        read_file(path, "responses", column="q")


RESPONSE_ERRORS = [
    (
        {"prompt": "a"},
        "column is 'response'; allowed: prompt. Set column, response_column or domain_column.",
    ),
    (
        {"prompt": ["a", "b"], "response": "x"},
        "prompt is 'a list of 2'; allowed: a text with more than whitespace (one turn). "
        "Later turns would need the other engine's earlier answers. Keep single turns.",
    ),
    (
        {"prompt": " ", "response": "x"},
        "prompt is ' '; allowed: a text with more than whitespace (one turn). "
        "Write it or remove it.",
    ),
]


@pytest.mark.parametrize(("record", "message"), RESPONSE_ERRORS)
def test_records_of_responses_that_cannot_be_used(tmp_path, record, message):
    path = write_lines(tmp_path / "r.jsonl", [{"prompt": "fine", "response": "x"}, record])
    with pytest.raises(BlockPilotError) as error:
        read_file(path, "responses")
    assert str(error.value) == f"{path}: line 2: {message}"


def test_optional_columns_are_read_where_they_are(tmp_path):
    path = tmp_path / "r.parquet"
    for columns in ({"a": [1, 2]}, {"a": [1, 2], "b": [3, None]}):
        pq.write_table(pa.table(columns), path, row_group_size=1)
        found = list(read_records(path, ["a"], optional=["b"]))
        assert [where for where, _ in found] == [f"{path}: row 1", f"{path}: row 2"]
        assert {key: [r[key] for _, r in found] for key in columns} == columns
        assert [set(record) for _, record in found] == [set(columns)] * 2


def test_text_of_another_engine_cannot_share_its_noise():
    check_external("sampled", "match", 1.0, "chat")
    check_external("greedy", "coupled", 0.0, "chat")
    with pytest.raises(BlockPilotError) as error:
        check_external("sampled", "coupled", 0.7, "chat")
    assert str(error.value) == (
        "decode.variants.sampled.sampling is 'coupled'; allowed: match, for the text of another "
        "engine (data set chat). That text was not drawn with this project's noise: which noise "
        "chose each token is unknown, so the draft cannot share it. "
        "Set decode.variants.sampled.sampling=match."
    )
