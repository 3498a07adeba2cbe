"""The embedded world: what the grammars promise, and the checks of generated text."""

import contextlib
import doctest
import hashlib
import io
import random
import re

import pytest

from blockpilot.pocket.arithmetic import final_answer
from blockpilot.pocket.corpus import GENERATORS, draw_conversation, draw_corpus
from blockpilot.pocket.programs import parses
from blockpilot.pocket.quality import text_quality
from blockpilot.texts import loops

SAMPLE = {d: [draw_conversation(d, 5, i) for i in range(300)] for d in GENERATORS}


def test_the_training_corpus_never_changes():
    """The shipped pair's `unlike_seed` only excludes its training prompts while this holds."""
    digest = hashlib.sha256()
    for domain, turns in draw_corpus(20260, 700):
        digest.update(repr((domain, turns)).encode())
    assert digest.hexdigest().startswith("1461808e58460dd157b09058ff50b51376e7bc46")


@pytest.mark.parametrize("domain", GENERATORS)
def test_conversations_depend_on_their_index_alone(domain):
    state = random.getstate()
    assert draw_conversation(domain, 5, 7) == SAMPLE[domain][7]
    assert random.getstate() == state
    assert len({turns[0][0] for turns in SAMPLE[domain]}) > 290


@pytest.mark.parametrize("domain", GENERATORS)
def test_reference_responses_do_not_loop(domain):
    answers = [answer for turns in SAMPLE[domain] for _, answer in turns]
    assert not any(loops(answer.split()) for answer in answers)


def test_arithmetic_is_right():
    operations = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "x": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    equations = 0
    for turns in SAMPLE["arithmetic"]:
        steps = re.findall(r"(\d+) ([-+x/]) (\d+) = (\d+)", turns[0][1])
        for a, sign, b, result in steps:
            assert operations[sign](int(a), int(b)) == int(result)
        equations += len(steps)
        assert final_answer(turns[0][1]) is not None
    assert equations > 900


def test_code_examples_are_true():
    for turns in SAMPLE["code"][:100]:
        response = turns[0][1]
        assert parses(response)
        namespace: dict = {}
        exec(response, namespace)
        function = next(v for k, v in namespace.items() if k != "__builtins__" and callable(v))
        finder = doctest.DocTestFinder(recurse=False)
        runner = doctest.DocTestRunner()
        with contextlib.redirect_stdout(io.StringIO()):
            for test in finder.find(function, "f", globs=namespace):
                runner.run(test)
        assert runner.summarize(verbose=False).failed == 0
        assert runner.tries > 0


def test_prose_has_second_turns():
    turns = [len(t) for t in SAMPLE["prose"]]
    assert set(turns) == {1, 2}
    assert 0.25 < turns.count(2) / len(turns) < 0.45


def test_unknown_domain():
    with pytest.raises(ValueError, match=r"poetry.*arithmetic, code, prose"):
        draw_conversation("poetry", 1, 1)


def test_quality_measures():
    gram = list(range(8))
    assert loops(gram * 4) and not loops(gram * 3)
    assert final_answer("so 3 + 4 = 7\nAnswer: 7 apples") == 7
    assert final_answer("no answer") is None
    assert not parses("def broken(:")
    row = {
        "domain": "arithmetic",
        "output_ids": [1, 2, 3],
        "stop_reason": "stop",
        "response": "Answer: 5",
        "reference": "Answer: 6",
    }
    summary = text_quality([row, row | {"reference": "Answer: 5", "stop_reason": "length"}])
    assert summary["arithmetic"] == {
        "n": 2,
        "median_tokens": 3,
        "loop_share": 0.0,
        "stop_share": 0.5,
        "correct_share": 0.5,
    }
