"""Trajectories from responses of another engine, by prefills alone.

The oracle is the target itself: text that `decode_batch` wrote, and passes over one text alone.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from blockpilot.errors import BlockPilotError
from blockpilot.external import Response, force_trajectories, read_responses
from blockpilot.prompts import (
    collect_conversations,
    extend_conversations,
    hash_prompt,
    load_tokenizer,
    render,
)
from blockpilot.records import TRAJECTORIES, read_table, write_table
from blockpilot.target import load_target
from blockpilot.trajectories import decode_batch

POCKET = Path(__file__).resolve().parents[2] / "workflow" / "resources" / "pocket" / "target"
STOP_IDS = (5, 7)
NUM_NEW = 24


def make_requests(prompts):
    return pd.DataFrame(
        {
            "prompt_id": [hash_prompt(prompt) for prompt in prompts],
            "conversation_id": [f"c{index}" for index in range(len(prompts))],
            "dataset": "mine",
            "input_ids": [np.array(prompt, dtype=np.int32) for prompt in prompts],
        }
    )


def make_responses(outputs):
    return {
        f"c{index}": Response(output_ids=list(ids), stop_reason="length")
        for index, ids in enumerate(outputs)
    }


def force(target, prompts, outputs, memory_mb=64):
    """Return the rows in the order of the prompts."""
    requests, responses = make_requests(prompts), make_responses(outputs)
    rows = list(force_trajectories(target, requests, responses, memory_mb=memory_mb))
    by_prompt = {row["prompt_id"]: row for row in rows}
    assert len(by_prompt) == len(rows) == len(prompts)
    return [by_prompt[prompt_id] for prompt_id in requests["prompt_id"]]


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(torch.float64)


@pytest.fixture(scope="module")
def decoded(target, prompts):
    """Return greedy trajectories; most texts are cut, so that lengths differ."""
    found = decode_batch(target, prompts, max_new_tokens=NUM_NEW, stop_ids=STOP_IDS)
    assert len({len(trajectory.output_ids) for trajectory in found}) > 3
    return found


def count_greedy(target, prompt, output):
    """Count the argmax tokens of one text by itself, with the model's own forward pass."""
    with torch.inference_mode():
        logits = target.model(torch.tensor([[*prompt, *output]])).logits[0]
    predicted = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
    return sum(token == other for token, other in zip(output, predicted, strict=True))


def test_the_targets_own_text_is_all_greedy(target, prompts, decoded, tmp_path):
    outputs = [trajectory.output_ids for trajectory in decoded]
    rows = force(target, prompts, outputs)
    for row, own in zip(rows, decoded, strict=True):
        assert row["greedy_share"] == 1.0
        assert row["output_ids"] == own.output_ids
        assert (row["seed"], row["source"]) == (0, "external")
        for name in ("prefill_logits", "prefill_hidden"):
            assert row[name].dtype == np.float32
            np.testing.assert_allclose(row[name], getattr(own, name), rtol=1e-6, atol=1e-6)
    write_table(tmp_path / "t.parquet", rows, TRAJECTORIES)
    stored = read_table(tmp_path / "t.parquet", TRAJECTORIES)
    assert sorted(stored["prompt_id"]) == sorted(row["prompt_id"] for row in rows)


def test_the_reason_to_stop_is_the_responses(target, prompts):
    response = Response(output_ids=[9, 5], stop_reason="stop")
    (row,) = force_trajectories(target, make_requests(prompts[:1]), {"c0": response}, memory_mb=1)
    assert (row["output_ids"], row["stop_reason"]) == ([9, 5], "stop")


def test_an_altered_last_token_is_one_miss(target, prompts, decoded):
    outputs = [[*t.output_ids[:-1], (t.output_ids[-1] + 1) % 97] for t in decoded]
    for row, output in zip(force(target, prompts, outputs), outputs, strict=True):
        assert row["greedy_share"] == (len(output) - 1) / len(output)


def test_altered_text_is_counted_exactly(target, prompts, decoded):
    outputs = [list(trajectory.output_ids) for trajectory in decoded]
    for index, output in enumerate(outputs):
        output[index % len(output)] = index
    shares = [row["greedy_share"] for row in force(target, prompts, outputs)]
    expected = [
        count_greedy(target, prompt, output) / len(output)
        for prompt, output in zip(prompts, outputs, strict=True)
    ]
    assert shares == expected
    assert min(shares) < 0.6 < max(shares)


def watch(target, monkeypatch):
    """Record the shapes of the target's passes and the rows of its head."""
    passes, heads = [], []
    forward = target.forward

    def record(input_ids, *args, **kwargs):
        passes.append(tuple(input_ids.shape))
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(target, "forward", record)
    hook = target.head.register_forward_hook(lambda _m, args, _o: heads.append(len(args[0])))
    return passes, heads, hook


def test_results_do_not_depend_on_memory(target, prompts, decoded, monkeypatch):
    outputs = [list(trajectory.output_ids) for trajectory in decoded]
    for output in outputs[::3]:
        output[len(output) // 2] = 1
    passes, heads, hook = watch(target, monkeypatch)
    counts, found = [], []
    for memory_mb in (0, 1, 64):
        found.append(force(target, prompts, outputs, memory_mb))
        counts.append((len(passes), max(heads)))
        passes.clear()
        heads.clear()
    hook.remove()
    # Without memory: one text per pass, one row per head. With much: one pass per bucket.
    buckets = {hash_prompt(prompt)[0] for prompt in prompts}
    assert counts[0] == (len(prompts), 1)
    assert counts[2] == (len(buckets), max(map(len, outputs)))
    assert len(buckets) < counts[1][0] < len(prompts)
    for rows in found[1:]:
        for row, other in zip(rows, found[0], strict=True):
            assert row["greedy_share"] == other["greedy_share"]
            for name in ("prefill_logits", "prefill_hidden"):
                np.testing.assert_allclose(row[name], other[name], rtol=1e-6, atol=1e-6)


def test_memory_bounds_passes_and_heads(target, monkeypatch):
    prompts = [[n, 3] for n in range(97)]
    outputs = [[(n + at) % 97 for at in range(5 + n)] for n in range(97)]
    passes, heads, hook = watch(target, monkeypatch)
    force(target, prompts, outputs, memory_mb=1)
    hook.remove()
    # 3 layers kept of 32, and 4 x 32, 4 x 4 heads of 8 and 3 x 64 numbers of 8 bytes each.
    token_bytes = 8 * (3 * 32 + 4 * 32 + 4 * 32 + 3 * 64)
    assert max(rows * length for rows, length in passes) * token_bytes <= 2**20
    assert max(heads) * 97 * 16 <= 2**20


def test_a_bucket_gives_the_same_bits_by_itself(target, prompts, decoded):
    outputs = [trajectory.output_ids for trajectory in decoded]
    requests, responses = make_requests(prompts), make_responses(outputs)
    together = list(force_trajectories(target, requests, responses, memory_mb=1))
    apart = []
    for _, part in requests.iloc[::-1].groupby(requests["prompt_id"].str[0]):
        apart += force_trajectories(target, part, responses, memory_mb=1)
    for row, other in zip(together, apart, strict=True):
        assert row["prompt_id"] == other["prompt_id"]
        assert np.array_equal(row["prefill_logits"], other["prefill_logits"])
        assert np.array_equal(row["prefill_hidden"], other["prefill_hidden"])


def test_rows_do_not_keep_passes_alive(target, prompts, decoded):
    outputs = [trajectory.output_ids for trajectory in decoded[:2]]
    for row in force(target, prompts[:2], outputs):
        assert row["prefill_logits"].flags.owndata
        assert row["prefill_hidden"].flags.owndata


def test_eager_attention_needs_no_mask_either(make_target, target, prompts, decoded):
    eager = make_target(torch.float64, attn_implementation="eager")
    assert eager.config._attn_implementation == "eager"
    outputs = [trajectory.output_ids for trajectory in decoded]
    assert {row["greedy_share"] for row in force(eager, prompts, outputs, 1)} == {1.0}


def test_no_requests(target):
    assert list(force_trajectories(target, make_requests([]), {}, memory_mb=1)) == []


def test_a_prompt_without_response(target, prompts):
    requests = make_requests(prompts[:2])
    responses = make_responses([[1]])
    with pytest.raises(BlockPilotError) as error:
        list(force_trajectories(target, requests, responses, memory_mb=1))
    assert str(error.value) == (
        f"data set mine, prompt {hash_prompt(prompts[1])}: response is 'missing'; allowed: one "
        "for conversation c1. Add the prompt and its response to the data set's file, or take "
        "the prompt away."
    )


def test_text_beyond_the_context(target):
    limit = target.context_tokens
    fits = force(target, [[1, 2]], [[3] * (limit - 2)])
    assert len(fits[0]["output_ids"]) == limit - 2
    with pytest.raises(BlockPilotError) as error:
        force(target, [[1, 2]], [[3] * (limit - 1)])
    assert str(error.value) == (
        f"data set mine, prompt {hash_prompt([1, 2])}: prompt tokens + max_new_tokens is "
        f"'2 + {limit - 1}'; allowed: at most {limit}, the target's context. "
        "Shorten the prompt or lower decode.max_new_tokens."
    )


# The shipped pair, from file to trajectories


def test_text_of_the_shipped_target(tmp_path):
    tokenizer, target = load_tokenizer(POCKET), load_target(POCKET, "float64")
    questions = ["I am Nele, a builder. Fill in a card for Tivanu.", "Ida buys 4 hats. How many?"]
    chats = [[{"role": "user", "content": text}] for text in questions]
    prompts = [render(tokenizer, messages, {})[1] for messages in chats]
    stop_ids, limit = {tokenizer.eos_token_id}, 70
    own = decode_batch(target, prompts, max_new_tokens=limit, stop_ids=stop_ids)
    assert [trajectory.stop_reason for trajectory in own] == ["stop", "length"]
    records = [
        {
            "prompt": text,
            "response": tokenizer.decode(trajectory.output_ids, skip_special_tokens=True),
            "finish_reason": trajectory.stop_reason,
        }
        for text, trajectory in zip(questions, own, strict=True)
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    settings = {"source": "responses", "path": str(path)}
    responses = read_responses(settings, tokenizer, stop_ids, limit, target.vocab_size)
    conversations = pd.DataFrame(collect_conversations("mine", settings))
    requests = pd.DataFrame(
        extend_conversations(conversations, tokenizer, None, {}, target.context_tokens, limit)
    )
    rows = list(force_trajectories(target, requests, responses, memory_mb=64))
    found = {row["prompt_id"]: row for row in rows}
    for prompt, trajectory in zip(prompts, own, strict=True):
        row = found[hash_prompt(prompt)]
        assert row["output_ids"] == trajectory.output_ids
        assert row["stop_reason"] == trajectory.stop_reason
        assert row["greedy_share"] == 1.0
