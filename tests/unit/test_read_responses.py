"""Reading responses of another engine: where they end, what they belong to, what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blockpilot.errors import BlockPilotError
from blockpilot.external import Response, read_responses
from blockpilot.prompts import collect_conversations, hash_turns

STOP_IDS = (5, 7)


class Letters:
    """A tokenizer of letters: a is 10, b is 11, ...; "." is the eos 5 and ";" a stop token 7."""

    eos_token_id = 5

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        special = {".": 5, ";": 7, " ": 8}
        return [special.get(letter, ord(letter) - 87) for letter in text if letter != "\n"]


def read(path, records, tokenizer=None, max_new_tokens=6, **settings):
    """Write records to a file and read them as a data set's responses."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        path.write_text("\n".join(map(json.dumps, records)))
    settings = {"source": "responses", "path": str(path), **settings}
    return read_responses(settings, tokenizer or Letters(), STOP_IDS, max_new_tokens, 97)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize(
    ("response", "finish", "output_ids", "stop_reason"),
    [
        ("abc", None, [10, 11, 12, 5], "stop"),
        ("abc", "stop", [10, 11, 12, 5], "stop"),
        ("abc.", "stop", [10, 11, 12, 5], "stop"),
        ("abc", "length", [10, 11, 12], "length"),
        ("abc.", "length", [10, 11, 12, 5], "stop"),
        ("a;b.c", "stop", [10, 7], "stop"),
        ("abcde", "stop", [10, 11, 12, 13, 14, 5], "stop"),
        ("abcdef", "stop", [10, 11, 12, 13, 14, 15], "length"),
        ("abcdefgh.", "stop", [10, 11, 12, 13, 14, 15], "length"),
        (" ", "stop", [8, 5], "stop"),
        ([10, 11, 5], "stop", [10, 11, 5], "stop"),
        ([10, 11], "stop", [10, 11], "length"),
        ([10, 7, 11], None, [10, 7], "stop"),
        ([0, 96, 1, 2, 3, 4, 6], "length", [0, 96, 1, 2, 3, 4], "length"),
    ],
)
def test_responses_end_as_decoding_would(
    tmp_path, suffix, response, finish, output_ids, stop_reason
):
    expected = Response(output_ids=output_ids, stop_reason=stop_reason)
    record = {"prompt": "q", "response": response, "finish_reason": finish}
    found = read(tmp_path / f"r{suffix}", [record])
    assert found == {hash_turns(["q"]): expected}
    if finish is None:
        del record["finish_reason"]
        assert read(tmp_path / f"none{suffix}", [record]) == found


def test_eos_is_appended_only_where_it_stops_requests(tmp_path):
    tokenizer = Letters()
    for eos in (None, 9):
        tokenizer.eos_token_id = eos
        (found,) = read(
            tmp_path / "r.jsonl", [{"prompt": "q", "response": "ab"}], tokenizer
        ).values()
        assert found == Response(output_ids=[10, 11], stop_reason="length")


def test_keys_are_those_of_the_conversations(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    records = [
        {"q": "Grüße", "a": "x"},
        {"q": "b", "a": "y"},
        {"q": "Grüße", "a": "z"},
        {"q": "c", "a": ""},
    ]
    columns = {"column": "q", "response_column": "a"}
    # What lies behind `count` is not looked at.
    found = read(path, records, **columns, count=2)
    assert f"warning: {path}: dropped 1 repeated prompts with their" in capsys.readouterr().err
    settings = {"source": "responses", "path": str(path), "count": 2, **columns}
    rows = collect_conversations("mine", settings)
    assert list(found) == [row["conversation_id"] for row in rows]
    assert [response.output_ids for response in found.values()] == [[33, 5], [34, 5]]


NOTHING = "; allowed: a text or a list of token ids, of at least one token. Ask for the response "
OUTSIDE = "; allowed: an integer from 0 to 96, the target's vocabulary. Use ids of the target's "


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"response": ""}, f"response is ''{NOTHING}again or remove the record."),
        ({"response": "\n"}, f"response is '\\n'{NOTHING}again or remove the record."),
        ({"response": "\ud800"}, f"response is '\\ud800'{NOTHING}again or remove the record."),
        ({"response": []}, f"response is []{NOTHING}again or remove the record."),
        ({"response": None}, f"response is None{NOTHING}again or remove the record."),
        ({"response": {"a": 1}}, f"response is {{'a': 1}}{NOTHING}again or remove the record."),
        ({"response": [1, 97]}, f"response[1] is 97{OUTSIDE}own tokenizer, or write the text."),
        ({"response": [-1]}, f"response[0] is -1{OUTSIDE}own tokenizer, or write the text."),
        ({"response": [True]}, f"response[0] is True{OUTSIDE}own tokenizer, or write the text."),
        ({"response": [1.0]}, f"response[0] is 1.0{OUTSIDE}own tokenizer, or write the text."),
        ({"response": ["a"]}, f"response[0] is 'a'{OUTSIDE}own tokenizer, or write the text."),
        (
            {"response": "a", "finish_reason": "tool_calls"},
            'finish_reason is \'tool_calls\'; allowed: null, "stop", "length". '
            "The response is not whole: ask for it again or remove the record.",
        ),
        (
            {"response": [1], "finish_reason": ""},
            'finish_reason is \'\'; allowed: null, "stop", "length". '
            "The response is not whole: ask for it again or remove the record.",
        ),
        (
            {"prompt": ["a"], "response": "a"},
            "prompt is 'a list of 1'; allowed: a text with more than whitespace (one turn). "
            "Later turns would need the other engine's earlier answers. Keep single turns.",
        ),
        (
            {},
            "column is 'response'; allowed: prompt. Set column, response_column or domain_column.",
        ),
    ],
)
def test_records_that_cannot_be_used(tmp_path, record, message):
    path = tmp_path / "r.jsonl"
    with pytest.raises(BlockPilotError) as error:
        read(path, [{"prompt": "first", "response": "a"}, {"prompt": "q"} | record])
    assert str(error.value) == f"{path}: line 2: {message}"
