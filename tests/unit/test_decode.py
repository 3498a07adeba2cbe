"""The decode loop: exact about what a round commits, where a request ends and what a draft sees."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from blockpilot.decode import Generation, generate
from blockpilot.errors import BlockPilotError
from blockpilot.policies import ArPolicy, FixedPolicy, SelectorPolicy, TablePolicy
from blockpilot.sampling import Sampling
from blockpilot.trajectories import decode_batch

NEW_TOKENS = 32
BLOCK_SIZES = range(1, 9)  # 1..2B
BUSY = [0, 4, 6, 9]  # prompts on which the tiny draft has rounds of many lengths
WARM = Sampling(temperature=1.0)
ROUNDS = ("output_ids", "block_sizes", "num_accepted", "num_committed", "stop_reason")


def rounds_of(generation: Generation) -> dict:
    return {name: getattr(generation, name) for name in ROUNDS}


def ar_text(target, prompt, count=NEW_TOKENS, **settings) -> list[int]:
    return generate(target, None, prompt, ArPolicy(), max_new_tokens=count, **settings).output_ids


class ScriptedDraft:
    """Proposes given tokens and remembers the context it was fed."""

    def __init__(self, target, script: dict[int, int], mask_token_id: int = 0) -> None:
        self.target, self.script = target, script
        self.config = SimpleNamespace(mask_token_id=mask_token_id)
        self.features: list[torch.Tensor] = []

    def new_cache(self, capacity: int) -> SimpleNamespace:
        self.features.clear()
        return SimpleNamespace(length=0)

    def append_context(self, features, cache) -> None:
        self.features.append(features)
        cache.length += features.shape[1]

    def __call__(self, embeddings, positions, context):
        # The context ends exactly where the block starts: the anchor has no features yet.
        assert context.length == positions[0]
        ids = torch.tensor([[self.script[p] for p in positions]])
        hidden = self.target.embeddings[ids]
        assert torch.equal(self.target.head(hidden).argmax(-1), ids)
        return hidden


def test_the_tiny_draft_is_accepted_often_enough_to_test_with(pair64, prompts) -> None:
    for temperature in (0.0, 1.0):
        settings = {"max_new_tokens": NEW_TOKENS, "seed": 5}
        settings["sampling"] = Sampling(temperature=temperature)
        found = [generate(*pair64, prompts[i], FixedPolicy(6), **settings) for i in BUSY]
        assert len({n for generation in found for n in generation.num_accepted}) >= 3


def test_batches_equal_single_requests_in_everything(pair64, prompts) -> None:
    target = pair64.target
    stop_ids = {t for p in prompts[:3] for t in ar_text(target, p, sampling=WARM, seed=2)[9:11]}
    settings = {"max_new_tokens": 20, "stop_ids": stop_ids, "sampling": WARM, "seed": 2}
    reasons = set()
    for prompt, row in zip(prompts[:8], decode_batch(target, prompts[:8], **settings), strict=True):
        alone = generate(target, None, prompt, ArPolicy(), **settings)
        assert (row.output_ids, row.stop_reason) == (alone.output_ids, alone.stop_reason)
        assert torch.allclose(torch.from_numpy(row.prefill_logits), alone.prefill_logits.float())
        assert torch.allclose(torch.from_numpy(row.prefill_hidden), alone.prefill_hidden.float())
        logits = target.model(torch.tensor([prompt + row.output_ids])).logits[0]
        greedy = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
        agree = [a == b for a, b in zip(greedy, row.output_ids, strict=True)]
        assert row.greedy_share == pytest.approx(sum(agree) / len(agree))
        reasons.add(row.stop_reason)
    assert reasons == {"stop", "length"}  # rows left the batch at different times


def test_rounds_and_context_of_a_scripted_draft(pair64, prompts) -> None:
    """A draft that is wrong at known places: every number of every round is predictable."""
    target, prompt = pair64.target, prompts[1]
    text = ar_text(target, prompt)
    start = len(prompt)
    script = {start + i: token for i, token in enumerate(text)}
    wrong = [start + i for i in (2, 3, 9, 10, 17, 30)]
    script.update({position: (script[position] + 1) % 97 for position in wrong})
    script[start + NEW_TOKENS] = 0  # the last block asks for one token too many
    draft = ScriptedDraft(target, script)
    found = generate(target, draft, prompt, FixedPolicy(5), max_new_tokens=NEW_TOKENS)
    at, expected = start, []
    while at < start + NEW_TOKENS - 1:
        left = start + NEW_TOKENS - 1 - at
        size = min(5, left + 1)
        run = next((j for j in range(1, size) if at + j in wrong or j > left), size) - 1
        expected.append((size, min(run + 1, left)))
        at += expected[-1][1]
    assert list(zip(found.block_sizes, found.num_committed, strict=True)) == expected
    assert found.output_ids == text
    assert {1, 5} <= set(found.num_committed)
    # Context rows are the target's features of committed tokens, in order, each exactly once.
    fed = torch.cat(draft.features, dim=1)
    whole = target.forward(torch.tensor([prompt + text])).features
    assert [f.shape[1] for f in draft.features] == [start, *found.num_committed[:-1]]
    assert torch.allclose(fed, whole[:, : fed.shape[1]], rtol=1e-9, atol=1e-9)


def test_a_perfect_draft_commits_whole_blocks_mask_tokens_included(pair64, prompts) -> None:
    target, prompt = pair64.target, prompts[0]
    text = ar_text(target, prompt)
    script = {len(prompt) + i: token for i, token in enumerate([*text, 0])}
    draft = ScriptedDraft(target, script, mask_token_id=text[6])
    found = generate(target, draft, prompt, FixedPolicy(8), max_new_tokens=NEW_TOKENS)
    assert found.output_ids == text
    assert found.num_committed == [8, 8, 8, 7]
    assert found.num_accepted[:3] == [7, 7, 7]


def test_an_emitted_mask_token_is_kept(pair64, copy_draft, prompts) -> None:
    target, draft = pair64
    text = ar_text(target, prompts[0])
    for mask_token_id in {text[1], text[5]}:
        other = copy_draft(draft, torch.float64, mask_token_id=mask_token_id)
        found = generate(target, other, prompts[0], FixedPolicy(4), max_new_tokens=NEW_TOKENS)
        assert found.output_ids == text


def test_a_stop_token_inside_an_accepted_block_clips_it(pair64, prompts) -> None:
    target, prompt = pair64.target, prompts[0]
    text = ar_text(target, prompt)
    script = {len(prompt) + i: token for i, token in enumerate([*text, 0])}
    stop = next(t for i, t in enumerate(text) if i >= 2 and i % 5 == 2 and t not in text[:i])
    at = text.index(stop)
    found = generate(
        target,
        ScriptedDraft(target, script),
        prompt,
        FixedPolicy(5),
        max_new_tokens=NEW_TOKENS,
        stop_ids={stop},
    )
    assert found.output_ids == text[: at + 1]
    assert found.stop_reason == "stop"
    assert found.num_committed[-1] == 2  # two tokens of a block whose four drafts all fitted
    assert found.num_accepted[-1] == 4
    assert sum(found.num_committed) == len(found.output_ids) - 1


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_a_stop_token_ends_every_block_size_at_the_same_place(block_size, pair64, prompts) -> None:
    text = ar_text(pair64.target, prompts[2])
    stop = text[13]
    found = generate(
        *pair64, prompts[2], FixedPolicy(block_size), max_new_tokens=NEW_TOKENS, stop_ids=[stop]
    )
    assert found.output_ids == text[: text.index(stop) + 1]
    assert found.stop_reason == "stop"
    assert sum(found.num_committed) == len(found.output_ids) - 1


def test_a_stop_token_right_after_prefill_leaves_no_round(pair64, prompts) -> None:
    first = ar_text(pair64.target, prompts[0])[:1]
    for policy in (FixedPolicy(4), ArPolicy()):
        found = generate(*pair64, prompts[0], policy, max_new_tokens=9, stop_ids=first)
        assert rounds_of(found) == {
            "output_ids": first,
            "block_sizes": [],
            "num_accepted": [],
            "num_committed": [],
            "stop_reason": "stop",
        }


@pytest.mark.parametrize(("block_size", "last"), [(1, 1), (2, 2), (8, 2)])
def test_one_and_two_new_tokens(block_size, last, pair64, prompts) -> None:
    text = ar_text(pair64.target, prompts[0])
    one = generate(*pair64, prompts[0], FixedPolicy(block_size), max_new_tokens=1)
    assert (one.output_ids, one.block_sizes, one.stop_reason) == (text[:1], [], "length")
    two = generate(*pair64, prompts[0], FixedPolicy(block_size), max_new_tokens=2)
    assert (two.output_ids, two.block_sizes, two.num_committed) == (text[:2], [last], [1])


def test_prompt_and_answer_may_fill_the_context_but_not_more(make_target, make_draft) -> None:
    target, draft = make_target(max_position_embeddings=40), make_draft()
    for policy in (FixedPolicy(8), ArPolicy()):
        full = generate(target, draft, [7] * 30, policy, max_new_tokens=10)
        assert len(full.output_ids) == 10
        with pytest.raises(BlockPilotError, match=r"'31 \+ 10'; allowed: at most 40"):
            generate(target, draft, [7] * 31, policy, max_new_tokens=10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_ids": []}, r"prompt: tokens is 0; allowed: at least 1"),
        ({"max_new_tokens": 0}, r"max_new_tokens is 0; allowed: an integer >= 1"),
        ({"draft": None}, r"draft of policy fixed:4 is None"),
        (
            {"policy": SimpleNamespace(name="odd", uses_draft=True, begin=lambda request: 0)},
            r"block size of policy odd is 0; allowed: an integer >= 1",
        ),
        ({"policy": TablePolicy("oracle", {(1, 2, 3): 4})}, r"policy oracle: prompt is \[5, 6\]"),
    ],
)
def test_impossible_requests_are_refused(changes, message, pair64) -> None:
    target, draft = pair64
    arguments = {
        "target": target,
        "draft": draft,
        "prompt_ids": [5, 6],
        "policy": FixedPolicy(4),
        "max_new_tokens": 4,
        **changes,
    }
    with pytest.raises(BlockPilotError, match=message):
        generate(**arguments)


def test_a_fixed_block_size_is_at_least_one() -> None:
    with pytest.raises(BlockPilotError, match=r"block_size is 0; allowed: an integer >= 1"):
        FixedPolicy(0)


def test_policies_see_the_prompt_and_its_last_position(pair64, prompts) -> None:
    target, prompt = pair64.target, prompts[3]
    seen = []
    policy = SimpleNamespace(name="spy", uses_draft=True, begin=lambda r: seen.append(r) or 3)
    found = generate(*pair64, prompt, policy, max_new_tokens=8, domain="code")
    assert len(seen) == 1
    assert (list(seen[0].prompt_ids), seen[0].domain) == (prompt, "code")
    logits = target.model(torch.tensor([prompt])).logits[0, -1]
    # Transformers' norms round to float32.
    torch.testing.assert_close(seen[0].prefill_logits, logits, rtol=1e-5, atol=1e-5)
    assert torch.equal(target.head(seen[0].prefill_hidden[None])[0], seen[0].prefill_logits)
    assert found.block_sizes[0] == 3
    table = TablePolicy("oracle", {tuple(prompt): 6})
    assert generate(*pair64, prompt, table, max_new_tokens=8).block_sizes[0] == 6
    chooser = SimpleNamespace(
        choose=lambda p, h: 2 if torch.equal(p, target.head(h[None])[0]) else 1
    )
    assert generate(*pair64, prompt, SelectorPolicy(chooser), max_new_tokens=8).block_sizes[0] == 2


def test_nothing_survives_a_request(make_target, copy_draft, pair64, prompts) -> None:
    settings = {"max_new_tokens": 16, "sampling": WARM, "seed": 1}
    requests = [(prompts[0], 6), (prompts[5], 3), (prompts[0], 6), (prompts[1], 8)]
    shared = [rounds_of(generate(*pair64, p, FixedPolicy(b), **settings)) for p, b in requests]
    for (prompt, block_size), found in zip(requests, shared, strict=True):
        target, draft = make_target(torch.float64), copy_draft(pair64.draft, torch.float64)
        fresh = generate(target, draft, prompt, FixedPolicy(block_size), **settings)
        assert rounds_of(fresh) == found


def test_ar_never_touches_the_draft(pair64, prompts) -> None:
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"ar used the draft's {name}")

    found = generate(pair64.target, Untouchable(), prompts[0], ArPolicy(), max_new_tokens=6)
    assert found.block_sizes == found.num_committed == [1] * 5
    assert found.num_accepted == [0] * 5
    with pytest.raises(AssertionError, match="ar used the draft's"):
        generate(pair64.target, Untouchable(), prompts[0], FixedPolicy(1), max_new_tokens=6)


def test_without_a_seed_torch_manual_seed_decides_the_text(pair64, prompts) -> None:
    texts = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        texts.append(ar_text(pair64.target, prompts[0], 12, sampling=WARM))
    assert texts[0] == texts[1] != texts[2]


def test_eager_attention_gives_the_same_text(make_target, pair64, prompts) -> None:
    target = make_target(torch.float64)
    target.model.set_attn_implementation("eager")
    text = ar_text(pair64.target, prompts[0])
    found = generate(target, pair64.draft, prompts[0], FixedPolicy(4), max_new_tokens=NEW_TOKENS)
    assert found.output_ids == text
    batch = decode_batch(target, prompts[:3], max_new_tokens=NEW_TOKENS, stop_ids=())
    assert batch[0].output_ids == text
