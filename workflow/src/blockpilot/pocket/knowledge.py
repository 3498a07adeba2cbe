"""Seeded grammar for short explanations and dialogues over an invented knowledge base.

The facts never change, so a small model can learn them by heart; only the choice of request, its
wording and the freer response formats depend on the generator that the caller passes in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

Turn = tuple[str, str]

MIN_CHARS, MAX_CHARS = 240, 620
TWO_TURN_SHARE = 0.35
PER_KIND = 12

# One block per attribute: "kinds: key", question, values (small to large where an order
# makes sense), verb phrases (the first is the plain one), and a remark that goes with it.
_TABLE = """
plant,animal,tool,mineral: colour
And what colour is it?
pale blue; deep red; dark green; bright yellow; silver grey; soft brown; pure white
is {v} in daylight; looks {v} from a distance; can be recognised by its {v} colour
The colour fades a little with age.
plant: height
How tall does it grow?
one hand high; knee high; as tall as a child; as tall as a door; as tall as a house
grows {v}; becomes {v} when it is old; ends up {v}
Its height depends on the soil as well.
plant: place
Where does it grow?
the salt marshes; the northern woods; the stony hills; the river banks; the old orchards
grows wild in {v}; is found in {v}; comes from {v}
Walk slowly there, for the ground is soft.
plant: needs
What does it need to stay alive?
a lot of river water; full sun all day; deep shade; cold night air; sandy soil
needs {v}; lives on {v}; does best with {v}
Without this it dries out within a week.
plant: use
What is it used for?
tea against coughs; strong rope; blue ink; sweet syrup; lamp oil; wound bandages
is used for {v}; is prized for {v}; gives people {v}
The oldest recipes mention this use already.
plant: season
When does it flower?
early spring; late spring; high summer; early autumn; deep winter
flowers in {v}; opens its buds in {v}; is at its best in {v}
The flowers last for about ten days.
plant,animal,mineral: discoverer
Who discovered it?
the sailor Orla Venn; the doctor Tam Brask; the shepherd Ilse Roon; the painter Dov Harl;\
 the teacher Mina Sulk; the hunter Pell Aro
was discovered by {v}; was first described by {v}; owes its name to {v}
The first report is still kept in a library.
plant,animal,tool,mineral: danger
Is it dangerous?
harmless to everyone; a little rough on the skin; risky for small children;\
 dangerous without gloves; dangerous even to experts
is {v}; is said to be {v}; is known to be {v}
It is wise to read the warning sign first.
animal: size
How big is it?
as small as a thumb; as small as a mouse; as big as a cat; as big as a goat; as big as a horse
is {v}; grows until it is {v}; ends up {v}
The young are about half as large.
animal: place
Where does it live?
hollow trees; warm caves; reed lakes; snowy peaks; wheat fields; sandy beaches
lives in {v}; makes its home in {v}; is mostly seen in {v}
It rarely leaves this home for long.
animal: food
And what does it eat?
ripe berries; small fish; dry grass; beetles and ants; tree bark; fallen nuts
eats {v}; feeds on {v}; likes nothing better than {v}
A full meal keeps it going for two days.
animal: habit
What does it do at night?
sings at night; digs long tunnels; sleeps upside down; hides shiny stones; swims in circles
{v}; often {v}; is famous because it {v}
Nobody knows for certain why it does so.
animal: season
When is it most active?
early spring; late spring; high summer; early autumn; deep winter
is most active in {v}; raises its young in {v}; is easiest to watch in {v}
During the other months it stays hidden.
town: founder
Who founded it?
a group of fishermen; three sisters; a retired general; a guild of weavers; a travelling monk
was founded by {v}; was built by {v}; owes its first walls to {v}
A small statue reminds visitors of this.
town: place
Where is it?
a wide bay; a steep cliff; a quiet lake; a dark forest; a mountain pass; a busy crossroads
lies next to {v}; stands beside {v}; can be found near {v}
The road there is open all year.
town: size
How many people live there?
two hundred people; nine hundred people; three thousand people; eight thousand people;\
 twenty thousand people
has {v}; is home to {v}; counts {v} in all
The number has hardly changed in years.
town: craft
What is it famous for?
glass bells; woollen coats; wooden boats; painted tiles; fine paper; copper pots
is famous for its {v}; makes {v}; sends {v} to every market
The workshops welcome curious guests.
town: dish
What do people eat there?
onion pie; smoked eel; plum soup; barley cakes; goat cheese; pepper stew
serves {v} on feast days; is proud of its {v}; treats its guests to {v}
Every family guards its own recipe.
town: landmark
What should I see there?
a leaning tower; a stone bridge; a sunken garden; a great clock; a round library
is known for {v}; is built around {v}; shows visitors {v}
It looks its best at sunset.
town: season
When should I visit it?
early spring; late spring; high summer; early autumn; deep winter
is best visited in {v}; is liveliest in {v}; holds its main fair in {v}
Book early, because the inns fill up.
town: price
What does a room cost there?
two coins; five coins; nine coins; fourteen coins; twenty coins; forty coins
offers a room for {v}; has rooms at {v} a night; charges guests {v} a night
Breakfast is always part of the price.
tool: length
How long is it?
as short as a finger; as short as a spoon; as long as an arm; as long as a broom;\
 as long as a ladder
is {v}; is described as being {v}; was designed to be {v}
A shorter copy is sold for beginners.
tool: material
What is it made of?
black iron; polished oak; whale bone; yellow brass; baked clay; woven cane
is made of {v}; consists of {v}; is built from {v}
This material lasts for many years.
tool: use
What is it used for?
cutting reeds; lifting stones; shaping clay; mending nets; measuring grain; cleaning wells
is used for {v}; was invented for {v}; is perfect for {v}
With practice the work takes half the time.
tool: maker
Who makes it?
the smiths of the coast; the monks of the valley; the Hark family; the northern guild;\
 the island carvers
is made by {v}; comes from {v}; bears the stamp of {v}
Each piece is signed on the handle.
tool: care
How do I look after it?
warm oil; clean sand; soft wax; cold water; a dry cloth
must be cleaned with {v}; is looked after with {v}; stays in shape with {v}
Do this once a week at least.
plant,tool,mineral: price
And what does it cost?
two coins; five coins; nine coins; fourteen coins; twenty coins; forty coins
costs {v}; sells for {v}; can be bought for {v}
Prices rise a little before the holidays.
mineral: hardness
How hard is it?
as soft as soap; as soft as chalk; as hard as a nail; as hard as glass; as hard as steel
is {v}; feels {v}; proves to be {v}
A simple scratch test confirms this.
mineral: place
Where is it found?
deep mines; dry river beds; old volcanoes; chalk cliffs; desert hills; sea caves
is dug up in {v}; is found in {v}; comes from {v}
Only small pieces lie near the surface.
mineral: use
What is it used for?
window glass; bright paint; wedding rings; sharp blades; roof tiles; warm lamps
is used for {v}; is turned into {v}; is valued for {v}
Craftsmen guard the method carefully.
mineral: glow
Does it glow?
a green glow in the dark; a red glow near fire; a faint glow in water; no glow at all;\
 a golden glow at noon
has {v}; shows {v}; is remembered for having {v}
Hold it in your hand to test this.
"""

# Steps per task; "~" separates equivalent wordings and {key} stands for a fact.
_STEPS = {
    "plant": (
        "grow",
        "Buy a young {n} for {price}.~Get a seedling of {n}; it costs {price}.|"
        "Give it {needs}.~Make sure that it gets {needs}.|"
        "Remember that it is {danger}.~Take care, as it is {danger}.|"
        "Leave enough room, for it grows {height}.~Plan the space: it grows {height}.|"
        "Wait for the flowers in {season}, then use it for {use}.",
    ),
    "animal": (
        "find",
        "Pack a bag and travel in {season}.~Set out in {season}.|"
        "Search for {n} in {place}.~Go to {place}, where {n} lives.|"
        "Look for something {colour} and {size}.~Watch for a {colour} shape, {size}.|"
        "Put down {food} and wait in silence.~Offer it {food} and sit still.|"
        "Keep in mind that it is {danger}.~Do not forget that it is {danger}.",
    ),
    "town": (
        "visit",
        "Plan the trip to {n} for {season}.~Travel to {n} in {season}.|"
        "Follow the road until you see {place}.~Take the road towards {place}.|"
        "Rent a room, which costs {price} a night.~Pay {price} for a room.|"
        "Start your walk at the main sight, {landmark}.~First go and see {landmark}.|"
        "Try {dish} for dinner and take home some {craft}.",
    ),
    "tool": (
        "use",
        "Buy {n} for {price} from {maker}.~Pay {maker} {price} for {n}.|"
        "Check that the {material} has no cracks.~Inspect the {material} for damage.|"
        "Hold it firmly, because it is {danger}.~Be careful: it is {danger}.|"
        "Begin with a small job, such as {use}.~Try it out by {use}.|"
        "Afterwards clean it with {care}.~Finish by cleaning it with {care}.",
    ),
    "mineral": (
        "find",
        "Ask a guide to take you to {place}.~Travel to {place} with a guide.|"
        "Look for stones that are {colour}.~Pick out the {colour} stones.|"
        "Test a piece: {n} is {hardness}.~Scratch it, since {n} is {hardness}.|"
        "Take care, because it is {danger}.~Mind that it is {danger}.|"
        "Sell it for {price}, or keep it for {use}.",
    ),
}
# Purpose, deciding attribute, and whether the larger value wins.
_PURPOSES = {
    "plant": (
        ("a small budget", "price", 0),
        ("a class of young children", "danger", 0),
        ("a tiny balcony", "height", 0),
        ("a tall hedge", "height", 1),
    ),
    "animal": (
        ("a class of young children", "danger", 0),
        ("a tiny flat", "size", 0),
        ("pulling a cart", "size", 1),
    ),
    "town": (
        ("a small budget", "price", 0),
        ("a quiet weekend", "size", 0),
        ("meeting many people", "size", 1),
    ),
    "tool": (
        ("a small budget", "price", 0),
        ("a class of young children", "danger", 0),
        ("a narrow bag", "length", 0),
        ("reaching far", "length", 1),
    ),
    "mineral": (
        ("a small budget", "price", 0),
        ("a class of young children", "danger", 0),
        ("hard wear", "hardness", 1),
        ("easy carving", "hardness", 0),
    ),
}
_PEOPLE = (
    "Ada Ben Cora Dan Elin Finn Greta Hugo Ida Jon Kaja Leo Mara Nils Olga Paul Rosa Sven Tess Udo "
    "Vera Will Yara Zeno Anton Bea Carl Dora Emil Flora Gus Hanna Ivo Jana Kurt Lena Max Nora Otto "
    "Pia Ralf Sara Tom Ursel Viktor Wanda Arno Berta Clara Dirk Edda Frida Georg Heidi Igor Julia "
    "Karl Lisa Moritz Nele"
).split()
_ROLES = (
    "teacher",
    "student",
    "nurse",
    "farmer",
    "trader",
    "cook",
    "sailor",
    "librarian",
    "reporter",
    "gardener",
    "builder",
    "guide",
)
_REASONS = (
    "I am writing a guide for the school in {t}.",
    "It is for a talk in {t} next week.",
    "My friends in {t} asked me about this.",
    "I need it for a poster in {t}.",
    "We had a long debate about it in {t}.",
    "I leave for {t} tomorrow.",
    "A museum in {t} wants to know.",
    "My neighbour from {t} never heard of it.",
)
_TONES = (
    "Please use plain words.",
    "A friendly tone would be nice.",
    "Thanks in advance.",
    "Please be exact.",
    "Take your time.",
    "I know nothing about it yet.",
    "No jargon, please.",
    "I would be very grateful.",
    "Stick to the facts, please.",
)
_NUMBERS = {2: "two", 3: "three"}


@dataclass(frozen=True)
class _Attr:
    """How one attribute of one kind is asked for and put into words."""

    question: str
    values: tuple[str, ...]
    phrases: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class _Thing:
    """One entry of the knowledge base."""

    name: str
    kind: str
    facts: dict[str, str]
    number: int

    @property
    def noun(self) -> str:
        """Return the kind with its article."""
        return ("an " if self.kind == "animal" else "a ") + self.kind

    @property
    def keys(self) -> list[str]:
        """Return the attribute names in card order."""
        return list(self.facts)


@cache
def _schema() -> dict[str, dict[str, _Attr]]:
    schema: dict[str, dict[str, _Attr]] = {kind: {} for kind in _STEPS}
    lines = _TABLE.strip().split("\n")
    for start in range(0, len(lines), 5):
        head, question, values, phrases, note = lines[start : start + 5]
        kinds, key = head.split(": ")
        attr = _Attr(question, tuple(values.split("; ")), tuple(phrases.split("; ")), note)
        for kind in kinds.split(","):
            schema[kind][key] = attr
    return schema


@cache
def _things() -> dict[str, list[_Thing]]:
    """Build the knowledge base; the constant seed keeps it the same in every process."""
    rng = random.Random(20240607)
    starts = [a + b for a in "B D F G K L M N P R T V Z".split() for b in "a e i o u".split()]
    ends = "lmor ndis rket sorra mbel vanu ltis grin zan lora nnek rdo".split()
    rng.shuffle(starts)
    names = [start + ends[i % len(ends)] for i, start in enumerate(starts)]
    base: dict[str, list[_Thing]] = {}
    for kind, attrs in _schema().items():
        base[kind] = []
        for number in range(PER_KIND):
            facts = {key: rng.choice(attr.values) for key, attr in attrs.items()}
            base[kind].append(_Thing(names.pop(), kind, facts, number))
    return base


def _vp(thing: _Thing, key: str, rng: random.Random | None = None) -> str:
    """Return the verb phrase for a fact: the plain one, or any one when given a generator."""
    phrases = _schema()[thing.kind][key].phrases
    return (rng.choice(phrases) if rng else phrases[0]).format(v=thing.facts[key])


def _note(thing: _Thing, key: str) -> str:
    return _schema()[thing.kind][key].note


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _aspects(keys: list[str]) -> str:
    return _join(["its " + key for key in keys])


def _body(rng: random.Random, thing: _Thing, keys: list[str], frames: list[str]) -> list[str]:
    """Say each fact in its own frame; no frame comes twice before all have been used."""
    order = rng.sample(frames, len(frames))
    return [
        order[i % len(order)].format(n=thing.name, k=thing.kind, a=key, p=_vp(thing, key, rng))
        for i, key in enumerate(keys)
    ]


def _paragraph(rng: random.Random, thing: _Thing, keys: list[str]) -> str:
    first = rng.choice(
        (
            "{n} is {o} that {p}.",
            "{n} is the name of {o} that {p}.",
            "As {o}, {n} is well known: it {p}.",
        )
    )
    text = [first.format(n=thing.name, o=thing.noun, p=_vp(thing, keys[0], rng))]
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
        text.append(_note(thing, keys[-1]))
    return " ".join(text)


def _child(rng: random.Random, thing: _Thing, keys: list[str]) -> str:
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


def _points(thing: _Thing, keys: list[str]) -> str:
    lines = [f"Here are three points on {thing.name}, {thing.noun}:"]
    for i, key in enumerate(keys):
        subject = "it" if i else thing.name
        lines.append(
            f"{i + 1}. {key.capitalize()}: {subject} {_vp(thing, key)}. " + _note(thing, key)
        )
    return "\n".join(lines)


def _bullets(thing: _Thing, keys: list[str]) -> str:
    lines = [f"Facts on {thing.name}, {thing.noun}:"]
    return "\n".join(lines + [f"- {key.capitalize()}: it {_vp(thing, key)}." for key in keys])


def _card(thing: _Thing, first: str | None = None) -> str:
    keys = thing.keys
    if first:
        keys = [first] + [key for key in keys if key != first]
    lines = [f"Name: {thing.name}", f"Kind: {thing.kind}"]
    lines += [f"{key.capitalize()}: {thing.facts[key]}" for key in keys]
    # The remark depends on the thing alone, so that a card stays predictable.
    noted = thing.keys[thing.number % len(thing.keys)]
    return "\n".join([*lines, f"Note on {noted}: {_note(thing, noted)}"])


def _contrast(one: _Thing, two: _Thing, key: str) -> str:
    if one.facts[key] == two.facts[key]:
        return f"{one.name} {_vp(one, key)}, and the same is true of {two.name}."
    return f"{one.name} {_vp(one, key)}, whereas {two.name} {_vp(two, key)}."


def _compare(rng: random.Random, one: _Thing, two: _Thing, keys: list[str]) -> str:
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
            f"So they differ in all {_NUMBERS[len(keys)]} points."
            if len(keys) > 2
            else "So they differ in both points."
        )
    extra = rng.choice([key for key in one.keys if key not in keys])
    return " ".join([*text, f"Besides, {one.name} {_vp(one, extra, rng)}."])


def _better(rng: random.Random, one: _Thing, two: _Thing, purpose: tuple[str, str, int]) -> str:
    goal, key, larger = purpose
    values = _schema()[one.kind][key].values
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
            _note(winner, key),
            f"Apart from that, {winner.name} {_vp(winner, rest[0], rng)} and "
            f"{_vp(winner, rest[1], rng)}.",
            f"The other one {_vp(loser, rest[2], rng)}.",
        ]
    )


def _steps(rng: random.Random, thing: _Thing) -> str:
    task, steps = _STEPS[thing.kind]
    lines = [f"To {task} {thing.name}, follow these steps:"]
    for i, step in enumerate(steps.split("|")):
        words = rng.choice(step.split("~")).format(n=thing.name, **thing.facts)
        lines.append(f"{i + 1}. {words}")
    closing = rng.choice([key for key in thing.keys if f"{{{key}}}" not in steps])
    return "\n".join([*lines, f"Good to know: it {_vp(thing, closing, rng)}."])


def _summary(rng: random.Random, thing: _Thing) -> str:
    said = [_vp(thing, key) for key in thing.keys]
    lead = rng.choice(("In short", "To sum up", "Briefly"))
    return (
        f"{lead}, {thing.name} is {thing.noun} that {_join(said[:4])}. "
        f"Moreover, it {_join(said[4:])}."
    )


def _answer(rng: random.Random, thing: _Thing, keys: list[str]) -> str:
    text = [
        f"{thing.name} {_vp(thing, keys[0])}.",
        _note(thing, keys[0]),
        f"As for the {keys[1]}, it {_vp(thing, keys[1])}.",
        _note(thing, keys[1]),
    ]
    rest = rng.sample([key for key in thing.keys if key not in keys], 2)
    lead = rng.choice(("You may also like to know that it", "Let me add that it", "Besides, it"))
    return " ".join([*text, f"{lead} {_vp(thing, rest[0], rng)} and {_vp(thing, rest[1], rng)}."])


def _dress(rng: random.Random, core: str) -> str:
    """Add independent optional slots (who asks, why, in which tone) around a request."""
    town = rng.choice(_things()["town"]).name
    person, role = rng.choice(_PEOPLE), rng.choice(_ROLES)
    who = rng.choice(
        (
            f"I am {person}, a {role}.",
            f"My name is {person}.",
            f"Hello, {person} here.",
            f"I work as a {role} in {town}.",
            f"{person}, a {role}, sent me.",
        )
    )
    why, tone = rng.choice(_REASONS).format(t=town), rng.choice(_TONES)
    parts = [who] if rng.random() < 0.65 else []
    parts += [why] if rng.random() < 0.5 or not parts else []
    return " ".join([*parts, core, *([tone] if rng.random() < 0.5 else [])])


def _single(rng: random.Random, thing: _Thing) -> tuple[str, str, list[str]]:
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
    return ask.format(n=n, t=_STEPS[thing.kind][0]), _steps(rng, thing), keys[:3]


def _pair(rng: random.Random, one: _Thing, two: _Thing) -> tuple[str, str]:
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
    purpose = rng.choice(_PURPOSES[one.kind])
    ask = rng.choice(
        (
            "Which is better for {g}, {x} or {y}?",
            "Is {x} or {y} better for {g}?",
            "I must choose between {x} and {y} for {g}. Which one?",
        )
    )
    return ask.format(x=one.name, y=two.name, g=purpose[0]), _better(rng, one, two, purpose)


def _follow(rng: random.Random, thing: _Thing, keys: list[str], other: _Thing, first: str) -> Turn:
    """Return a second turn that refers back to the thing of the first one."""
    forms = ["question", "question", "compare", "child"]
    forms += [] if first.startswith("Name:") else ["card"]
    form = rng.choice([*forms, "summary"])
    if form == "question":
        fresh = [key for key in thing.keys if key not in keys]
        one = rng.choice(fresh or thing.keys)
        two = rng.choice([key for key in thing.keys if key != one])
        ask = rng.choice((" Please mention its {} too.", " Tell me about its {} as well."))
        question = _schema()[thing.kind][one].question
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
    kind = rng.choice(list(_STEPS))
    one, two = rng.sample(_things()[kind], 2)
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
