"""Draft training sees what decoding sees, and resumes as if nothing had happened."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from blockpilot.decode import generate
from blockpilot.packed import PackedContext
from blockpilot.policies import FixedPolicy
from blockpilot.sampling import Sampling
from blockpilot.training import draft as training_draft
from blockpilot.training.draft import (
    DraftTraining,
    block_labels,
    block_logits,
    block_loss,
    sample_anchors,
    simulated_tau,
    train_draft,
)
from blockpilot.training.examples import Example, collate, plan_batches
from blockpilot.training.loop import LoopSettings, learning_rate_at


class Recorder:
    """A draft that remembers the logits it proposed from, by anchor position."""

    def __init__(self, pair) -> None:
        self.draft, self.head = pair.draft, pair.target.head
        self.config = pair.draft.config
        self.new_cache, self.append_context = pair.draft.new_cache, pair.draft.append_context
        self.logits: dict[int, torch.Tensor] = {}

    def __call__(self, embeddings, positions, context):
        hidden = self.draft(embeddings, positions, context)
        self.logits[positions[0]] = self.head(hidden[0, 1:])
        return hidden


@pytest.fixture
def live(pair64, prompts):
    """Return (text, blocks of the trained size that were decoded live, by anchor)."""
    recorder = Recorder(pair64)
    found = generate(
        pair64.target,
        recorder,
        prompts[0],
        FixedPolicy(4),
        max_new_tokens=40,
        sampling=Sampling(temperature=1.0),
        seed=0,
    )
    blocks = {at: logits for at, logits in recorder.logits.items() if len(logits) == 3}
    assert len(blocks) >= 10
    assert max(found.num_accepted) >= 2
    return prompts[0] + found.output_ids, blocks


def packed(pair, text: list[int], anchors: list[int]) -> torch.Tensor:
    ids = torch.tensor([text + [0] * 5])  # padding behind the text must not matter
    features = pair.target.forward(ids).features
    at = torch.tensor([anchors])
    return block_logits(pair.draft, pair.target, ids, features, at, 4)[0]


def test_packed_blocks_equal_the_decode_loop(pair64, live) -> None:
    text, blocks = live
    found = packed(pair64, text, sorted(blocks))
    for row, anchor in zip(found, sorted(blocks), strict=True):
        assert torch.allclose(row, blocks[anchor], rtol=1e-9, atol=1e-9), anchor


@pytest.mark.parametrize("shift", [1, -1])
def test_a_context_off_by_one_would_be_noticed(shift, pair64, live, monkeypatch) -> None:
    text, blocks = live
    under = PackedContext.under

    def shifted(context: PackedContext, blocks):
        return under(context, replace(blocks, anchor=blocks.anchor + shift))

    monkeypatch.setattr(PackedContext, "under", shifted)
    found = packed(pair64, text, sorted(blocks))
    for row, anchor in zip(found, sorted(blocks), strict=True):
        assert (row - blocks[anchor]).abs().max() > 1e-3, anchor


def test_simulated_tau_is_the_tau_of_decoding(pair64, prompts) -> None:
    for prompt in prompts[:6]:
        found = generate(*pair64, prompt, FixedPolicy(4), max_new_tokens=40)
        whole = sum(size == 4 for size in found.block_sizes) - 1
        count = sum(found.num_committed[:whole]) + 1
        text = prompt + found.output_ids[:count]
        example = Example(text, [False] * len(prompt) + [True] * count, "tiny")
        simulated = simulated_tau(pair64.draft, pair64.target, [example])
        assert simulated == {"tau_tiny": pytest.approx((count - 1) / whole)}


def test_anchors_are_drawn_from_responses_without_replacement() -> None:
    is_response = torch.zeros(3, 20, dtype=torch.bool)
    is_response[0, 5:15] = True
    is_response[1, 3:5] = True
    is_response[1, 9] = True  # alone: no successor to predict
    is_response[2, 12:] = True
    eligible = [set(range(5, 14)), {3}, set(range(12, 19))]
    drawn = [set(), set(), set()]
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        anchors, is_real = sample_anchors(is_response, 4, generator)
        assert anchors.shape == is_real.shape == (3, 4)
        assert (anchors.diff(dim=1) >= 0).all()
        for row in range(3):
            real = anchors[row][is_real[row]].tolist()
            assert len(set(real)) == len(real) == min(4, len(eligible[row]))
            assert set(real) <= eligible[row]
            assert anchors[row][~is_real[row]].tolist() == [0] * (4 - len(real))
            drawn[row].update(real)
        again = sample_anchors(is_response, 4, torch.Generator().manual_seed(seed))
        assert torch.equal(again[0], anchors)
        assert torch.equal(again[1], is_real)
    assert drawn == eligible


def test_more_anchors_than_tokens_are_cut() -> None:
    anchors, is_real = sample_anchors(torch.ones(1, 3, dtype=torch.bool), 8, torch.Generator())
    assert anchors[is_real].tolist() == [0, 1]
    assert anchors.shape[1] == 3


def test_labels_end_where_the_response_ends() -> None:
    rng = random.Random(0)
    ids = torch.tensor([[rng.randrange(97) for _ in range(12)] for _ in range(2)])
    is_response = torch.zeros(2, 12, dtype=torch.bool)
    is_response[0, 2:6] = is_response[0, 7:] = is_response[1, 1:11] = True
    anchors = torch.tensor([[2, 3, 5, 10], [0, 4, 9, 11]])
    labels, is_label = block_labels(ids, is_response, anchors, 4)
    for row in range(2):
        for index, anchor in enumerate(anchors[row].tolist()):
            expected = []
            for at in range(anchor + 1, min(anchor + 4, 12)):
                if not is_response[row, at]:
                    break
                expected.append(int(ids[row, at]))
            assert is_label[row, index].tolist() == [i < len(expected) for i in range(3)]
            assert labels[row, index][is_label[row, index]].tolist() == expected
    assert is_label.any(-1).tolist() == [[True, True, False, True], [True, True, True, False]]


def test_the_loss_weighs_slots_by_their_position() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, 11, generator=generator)
    labels = torch.randint(0, 11, (2, 3, 4), generator=generator)
    is_label = torch.rand(2, 3, 4, generator=generator) < 0.6
    total = weights = 0.0
    for row, block, slot in is_label.nonzero().tolist():
        weight = math.exp(-slot / 2.5)  # slot 0 predicts the first token behind the anchor
        total -= weight * float(logits[row, block, slot].log_softmax(-1)[labels[row, block, slot]])
        weights += weight
    loss = block_loss(logits, labels, is_label, 2.5)
    assert float(loss) == pytest.approx(total / weights, rel=1e-5)
    assert float(block_loss(logits, labels, torch.zeros_like(is_label), 2.5)) == 0.0


def test_batches_hold_every_example_once_and_keep_to_the_size(examples) -> None:
    batches = plan_batches(examples, 600, seed=3)
    assert sorted(i for batch in batches for i in batch) == list(range(len(examples)))
    for batch in batches:
        assert len(batch) * max(len(examples[i].ids) for i in batch) <= 600
    assert batches == plan_batches(examples, 600, seed=3)
    assert batches != plan_batches(examples, 600, seed=4)
    ids, is_response = collate([examples[0], examples[1]])
    assert ids.shape[1] % 32 == 0
    for row in range(2):
        length = len(examples[row].ids)
        assert ids[row, :length].tolist() == examples[row].ids
        assert is_response[row, :length].tolist() == examples[row].is_response
        assert not is_response[row, length:].any()


def test_the_learning_rate_rises_and_falls() -> None:
    settings = LoopSettings(steps=100, warmup_share=0.1, learning_rate=2.0)
    rates = [learning_rate_at(step, settings) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert 0 < rates[99] < 0.01
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.parametrize(
    ("interrupted", "calls"), [("block_loss", 3), ("simulated_tau", 0)], ids=["step", "evaluation"]
)
def test_an_interrupted_training_ends_with_the_same_parameters(
    interrupted, calls, make_target, examples, draft_config, tmp_path, monkeypatch
) -> None:
    target = make_target()

    def train(name: str):
        return train_draft(
            target,
            examples[:12],
            examples[:1],
            draft_config,
            DraftTraining(anchors_per_example=8, batch_tokens=128),
            LoopSettings(steps=6, evaluate_every_steps=3, save_every_s=0),
            tmp_path / name,
        )

    straight, state = train("straight.safetensors")
    working = getattr(training_draft, interrupted)
    done = []

    def fail(*arguments):
        if len(done) == calls:
            raise KeyboardInterrupt
        done.append(1)
        return working(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training_draft, interrupted, fail)
        with pytest.raises(KeyboardInterrupt):
            train("resumed.safetensors")
    assert (tmp_path / "resumed.safetensors").exists()
    steps = []
    with monkeypatch.context() as patch:
        patch.setattr(training_draft, "block_loss", lambda *a: steps.append(1) or block_loss(*a))
        resumed, resumed_state = train("resumed.safetensors")
    assert len(steps) == (3 if interrupted == "block_loss" else 4)  # the rest, not all six
    expected = dict(straight.named_parameters())
    for name, parameter in resumed.named_parameters():
        assert torch.equal(parameter, expected[name]), name
    without_time = [[{**row, "elapsed_s": 0} for row in s.history] for s in (state, resumed_state)]
    assert without_time[0] == without_time[1]
    assert [row["step"] for row in state.history] == [3, 6]
