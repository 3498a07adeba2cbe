"""A seeded grammar of questions about the invented knowledge base, and their answers."""

from __future__ import annotations

import random

from blockpilot.pocket.knowledge_base import (
    MAX_CHARS,
    MIN_CHARS,
    NUMBERS,
    PEOPLE,
    PURPOSES,
    REASONS,
    ROLES,
    STEPS,
    TONES,
    TWO_TURN_SHARE,
    Thing,
    Turn,
    attributes,
    remark,
    says,
    things,
)


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _aspects(keys: list[str]) -> str:
    return _join(["its " + key for key in keys])


def _body(rng: random.Random, thing: Thing, keys: list[str], frames: list[str]) -> list[str]:
    """Say each fact in its own frame; no frame comes twice before all have been used."""
    order = rng.sample(frames, len(frames))
    return [
        order[i % len(order)].format(n=thing.name, k=thing.kind, a=key, p=says(thing, key, rng))
        for i, key in enumerate(keys)
    ]


def _paragraph(rng: random.Random, thing: Thing, keys: list[str]) -> str:
    first = rng.choice(
        (
            "{n} is {o} that {p}.",
            "{n} is the name of {o} that {p}.",
            "As {o}, {n} is well known: it {p}.",
        )
    )
    text = [first.format(n=thing.name, o=thing.noun, p=says(thing, keys[0], rng))]
    frames = [
        "It {p}.",
        "{n} {p}.",
        "This {k} {p}.",
        "As for the {a}, it {p}.",
        "Many people know that it {p}.",
        "In addition, it {p}.",
        "Travellers report that it {p}.",
        "Note, too, that it {p}.",
    ]
    text += _body(rng, thing, keys[1:], frames)
    if rng.random() < 0.5:
        text.append(remark(thing, keys[-1]))
    return " ".join(text)


def _child(rng: random.Random, thing: Thing, keys: list[str]) -> str:
    first = rng.choice(
        ("Have you ever heard of {n}?", "Let me tell you about {n}.", "Today we meet {n}.")
    )
    text = [first.format(n=thing.name), f"It is {thing.noun}."]
    frames = [
        "Just think: it {p}!",
        "Did you know that it {p}?",
        "{n} {p}.",
        "Your friends may not know that it {p}.",
        "Grown-ups say that it {p}.",
        "And guess what: it {p}!",
        "My grandmother told me that it {p}.",
        "Look closely and you learn that it {p}.",
    ]
    text += _body(rng, thing, keys, frames)
    text.append(
        rng.choice(
            (
                "Now you can tell the others about it!",
                "Is that not wonderful?",
                f"Would you like to draw {thing.name} now?",
            )
        )
    )
    return " ".join(text)


def _points(thing: Thing, keys: list[str]) -> str:
    lines = [f"Here are three points on {thing.name}, {thing.noun}:"]
    for i, key in enumerate(keys):
        subject = "it" if i else thing.name
        lines.append(
            f"{i + 1}. {key.capitalize()}: {subject} {says(thing, key)}. " + remark(thing, key)
        )
    return "\n".join(lines)


def _bullets(thing: Thing, keys: list[str]) -> str:
    lines = [f"Facts on {thing.name}, {thing.noun}:"]
    return "\n".join(lines + [f"- {key.capitalize()}: it {says(thing, key)}." for key in keys])


def _card(thing: Thing, first: str | None = None) -> str:
    keys = thing.keys
    if first:
        keys = [first] + [key for key in keys if key != first]
    lines = [f"Name: {thing.name}", f"Kind: {thing.kind}"]
    lines += [f"{key.capitalize()}: {thing.facts[key]}" for key in keys]
    # The remark depends on the thing alone, so that a card stays predictable.
    noted = thing.keys[thing.number % len(thing.keys)]
    return "\n".join([*lines, f"Note on {noted}: {remark(thing, noted)}"])


def _contrast(one: Thing, two: Thing, key: str) -> str:
    if one.facts[key] == two.facts[key]:
        return f"{one.name} {says(one, key)}, and the same is true of {two.name}."
    return f"{one.name} {says(one, key)}, whereas {two.name} {says(two, key)}."


def _compare(rng: random.Random, one: Thing, two: Thing, keys: list[str]) -> str:
    text = [f"{one.name} and {two.name} are both {one.kind}s."]
    for lead, key in zip(
        rng.choice(
            (
                ("First, the {}: ", "Next, the {}: ", "Finally, the {}: "),
                ("On the {}: ", "Now the {}: ", "Last, the {}: "),
            )
        ),
        keys,
        strict=False,
    ):
        text.append(lead.format(key) + _contrast(one, two, key))
    same = [key for key in keys if one.facts[key] == two.facts[key]]
    if same:
        text.append(f"So they agree on the {_join(same)}.")
    else:
        text.append(
            f"So they differ in all {NUMBERS[len(keys)]} points."
            if len(keys) > 2
            else "So they differ in both points."
        )
    extra = rng.choice([key for key in one.keys if key not in keys])
    return " ".join([*text, f"Besides, {one.name} {says(one, extra, rng)}."])


def _better(rng: random.Random, one: Thing, two: Thing, purpose: tuple[str, str, int]) -> str:
    goal, key, larger = purpose
    values = attributes()[one.kind][key].values
    ranks = [values.index(thing.facts[key]) for thing in (one, two)]
    winner, loser = (one, two) if (ranks[0] > ranks[1]) == bool(larger) else (two, one)
    verdict, lead = f"For {goal}, {winner.name} is the better choice.", f"The {key} decides"
    if ranks[0] == ranks[1]:
        winner, loser, lead = one, two, f"Look at the {key}"
        verdict = f"For {goal}, {one.name} and {two.name} are equally good."
    rest = rng.sample([k for k in one.keys if k != key], 3)
    return " ".join(
        [
            verdict,
            f"{lead}: {_contrast(winner, loser, key)}",
            remark(winner, key),
            f"Apart from that, {winner.name} {says(winner, rest[0], rng)} and "
            f"{says(winner, rest[1], rng)}.",
            f"The other one {says(loser, rest[2], rng)}.",
        ]
    )


def _steps(rng: random.Random, thing: Thing) -> str:
    task, steps = STEPS[thing.kind]
    lines = [f"To {task} {thing.name}, follow these steps:"]
    for i, step in enumerate(steps.split("|")):
        words = rng.choice(step.split("~")).format(n=thing.name, **thing.facts)
        lines.append(f"{i + 1}. {words}")
    closing = rng.choice([key for key in thing.keys if f"{{{key}}}" not in steps])
    return "\n".join([*lines, f"Good to know: it {says(thing, closing, rng)}."])


def _summary(rng: random.Random, thing: Thing) -> str:
    said = [says(thing, key) for key in thing.keys]
    lead = rng.choice(("In short", "To sum up", "Briefly"))
    return (
        f"{lead}, {thing.name} is {thing.noun} that {_join(said[:4])}. "
        f"Moreover, it {_join(said[4:])}."
    )


def _answer(rng: random.Random, thing: Thing, keys: list[str]) -> str:
    text = [
        f"{thing.name} {says(thing, keys[0])}.",
        remark(thing, keys[0]),
        f"As for the {keys[1]}, it {says(thing, keys[1])}.",
        remark(thing, keys[1]),
    ]
    rest = rng.sample([key for key in thing.keys if key not in keys], 2)
    lead = rng.choice(("You may also like to know that it", "Let me add that it", "Besides, it"))
    return " ".join(
        [
            *text,
            f"{lead} {says(thing, rest[0], rng)} and {says(thing, rest[1], rng)}.",
        ]
    )


def _dress(rng: random.Random, core: str) -> str:
    """Add independent optional slots (who asks, why, in which tone) around a request."""
    town = rng.choice(things()["town"]).name
    person, role = rng.choice(PEOPLE), rng.choice(ROLES)
    who = rng.choice(
        (
            f"I am {person}, a {role}.",
            f"My name is {person}.",
            f"Hello, {person} here.",
            f"I work as a {role} in {town}.",
            f"{person}, a {role}, sent me.",
        )
    )
    why, tone = rng.choice(REASONS).format(t=town), rng.choice(TONES)
    parts = [who] if rng.random() < 0.65 else []
    parts += [why] if rng.random() < 0.5 or not parts else []
    return " ".join([*parts, core, *([tone] if rng.random() < 0.5 else [])])


def _single(rng: random.Random, thing: Thing) -> tuple[str, str, list[str]]:
    """Return the request, the response and the aspects covered, for one thing."""
    n, keys = thing.name, rng.sample(thing.keys, len(thing.keys))
    form = rng.choice(("free", "ordered", "child", "points", "bullets", "some", "card", "steps"))
    if form in ("free", "child"):
        keys = keys[: rng.randint(5, 8)]
        ask = (
            ("Describe {n}.", "Tell me about {n}.", "What is {n}?", "Write a paragraph on {n}.")
            if form == "free"
            else (
                "Write a short paragraph on {n} for a child.",
                "Explain {n} to a child.",
                "How would you present {n} to a six-year-old?",
            )
        )
        make = _paragraph if form == "free" else _child
        return rng.choice(ask).format(n=n), make(rng, thing, keys), keys
    if form == "ordered":
        keys = keys[: rng.randint(5, 7)]
        ask = rng.choice(
            ("Describe {n}: cover {a}, in that order.", "Write about {n} in this order: {a}.")
        )
        return ask.format(n=n, a=_aspects(keys)), _paragraph(rng, thing, keys), keys
    if form == "points":
        keys = keys[:3]
        ask = rng.choice(("Explain {n} in three points: {a}.", "Give me three points on {n}: {a}."))
        return ask.format(n=n, a=_aspects(keys)), _points(thing, keys), keys
    if form in ("bullets", "some"):
        keys = thing.keys if form == "bullets" else keys[: rng.randint(6, 7)]
        ask = (
            ("List the facts on {n} as bullets.", "Give me all facts on {n} as a bullet list.")
            if form == "bullets"
            else ("List these facts on {n} as bullets: {a}.", "Make bullets on {n} with {a}.")
        )
        return rng.choice(ask).format(n=n, a=_aspects(keys)), _bullets(thing, keys), keys
    if form == "card":
        first = keys[0] if rng.random() < 0.6 else None
        ask = rng.choice(("Make a card for {n}", "Give me a card on {n}", "Fill in a card for {n}"))
        tail = f" that starts with the {first}." if first else "."
        return ask.format(n=n) + tail, _card(thing, first), thing.keys
    ask = rng.choice(
        (
            "How do I {t} {n}?",
            "Which steps do I follow to {t} {n}?",
            "Explain step by step how to {t} {n}.",
        )
    )
    return ask.format(n=n, t=STEPS[thing.kind][0]), _steps(rng, thing), keys[:3]


def _pair(rng: random.Random, one: Thing, two: Thing) -> tuple[str, str]:
    """Return the request and the response for two things of one kind."""
    if rng.random() < 0.6:
        keys = rng.sample(one.keys, rng.randint(2, 3))
        ask = rng.choice(
            (
                "Compare {x} and {y}: look at the {a}.",
                "How do {x} and {y} differ in {a}?",
                "Set {x} against {y} by {a}.",
            )
        )
        return (ask.format(x=one.name, y=two.name, a=_join(keys)), _compare(rng, one, two, keys))
    purpose = rng.choice(PURPOSES[one.kind])
    ask = rng.choice(
        (
            "Which is better for {g}, {x} or {y}?",
            "Is {x} or {y} better for {g}?",
            "I must choose between {x} and {y} for {g}. Which one?",
        )
    )
    return ask.format(x=one.name, y=two.name, g=purpose[0]), _better(rng, one, two, purpose)


def _follow(rng: random.Random, thing: Thing, keys: list[str], other: Thing, first: str) -> Turn:
    """Return a second turn that refers back to the thing of the first one."""
    forms = ["question", "question", "compare", "child"]
    forms += [] if first.startswith("Name:") else ["card"]
    form = rng.choice([*forms, "summary"])
    if form == "question":
        fresh = [key for key in thing.keys if key not in keys]
        one = rng.choice(fresh or thing.keys)
        two = rng.choice([key for key in thing.keys if key != one])
        ask = rng.choice((" Please mention its {} too.", " Tell me about its {} as well."))
        question = attributes()[thing.kind][one].question
        return question + ask.format(two), _answer(rng, thing, [one, two])
    if form == "compare":
        picked = rng.sample(thing.keys, rng.randint(2, 3))
        ask = rng.choice(("Compare it with {} by {}.", "How does it differ from {} in {}?"))
        return ask.format(other.name, _join(picked)), _compare(rng, thing, other, picked)
    if form == "child":
        ask = rng.choice(("Now explain it to a child.", "How would you tell a child about it?"))
        return ask, _child(rng, thing, rng.sample(thing.keys, 5))
    if form == "card":
        return rng.choice(("Now give me a card for it.", "Put it on a card as well.")), _card(thing)
    # Only a first answer with every fact can be summarised; otherwise the request asks for them.
    ask = (
        ("Summarise that in two sentences.", "Now the same in two sentences.")
        if len(keys) == len(thing.keys)
        else ("Sum up all you know about it in two sentences.", "Put its facts in two sentences.")
    )
    return rng.choice(ask), _summary(rng, thing)


def _fits(text: str) -> bool:
    return MIN_CHARS <= len(text) <= MAX_CHARS


def _draft(rng: random.Random, second: bool) -> list[Turn]:
    kind = rng.choice(list(STEPS))
    one, two = rng.sample(things()[kind], 2)
    if rng.random() < 0.75:
        ask, reply, keys = _single(rng, one)
        turns = [(_dress(rng, ask), reply)]
        return turns + ([_follow(rng, one, keys, two, reply)] if second else [])
    ask, reply = _pair(rng, one, two)
    turns = [(_dress(rng, ask), reply)]
    if second:
        # After two things "it" would be unclear, so the request names the one that it means.
        again = rng.choice((one, two))
        question, answer, _ = _single(rng, again)
        turns.append((rng.choice(("Thanks. ", "Good. ", "One more thing. ")) + question, answer))
    return turns


def make_conversation(rng: random.Random) -> list[Turn]:
    """Generate one conversation about the invented knowledge base.

    Args:
        rng: The only source of randomness; equal states give equal conversations.

    Returns:
        One or two (user text, assistant text) turns, every response within the length bounds.
    """
    # Decided once, so that redrawing a misfit does not lower the share of two turns.
    second = rng.random() < TWO_TURN_SHARE
    while True:
        turns = _draft(rng, second)
        if all(_fits(reply) for _, reply in turns):
            return turns
