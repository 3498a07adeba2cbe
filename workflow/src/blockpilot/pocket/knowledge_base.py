"""The invented knowledge base: sixty things, their attributes, and the words for them."""

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
STEPS = {
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
PURPOSES = {
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
PEOPLE = (
    "Ada Ben Cora Dan Elin Finn Greta Hugo Ida Jon Kaja Leo Mara Nils Olga Paul Rosa Sven Tess Udo "
    "Vera Will Yara Zeno Anton Bea Carl Dora Emil Flora Gus Hanna Ivo Jana Kurt Lena Max Nora Otto "
    "Pia Ralf Sara Tom Ursel Viktor Wanda Arno Berta Clara Dirk Edda Frida Georg Heidi Igor Julia "
    "Karl Lisa Moritz Nele"
).split()
ROLES = (
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
REASONS = (
    "I am writing a guide for the school in {t}.",
    "It is for a talk in {t} next week.",
    "My friends in {t} asked me about this.",
    "I need it for a poster in {t}.",
    "We had a long debate about it in {t}.",
    "I leave for {t} tomorrow.",
    "A museum in {t} wants to know.",
    "My neighbour from {t} never heard of it.",
)
TONES = (
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
NUMBERS = {2: "two", 3: "three"}


@dataclass(frozen=True)
class _Attr:
    """How one attribute of one kind is asked for and put into words."""

    question: str
    values: tuple[str, ...]
    phrases: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Thing:
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
def attributes() -> dict[str, dict[str, _Attr]]:
    """Return the attributes of every kind, by key."""
    schema: dict[str, dict[str, _Attr]] = {kind: {} for kind in STEPS}
    lines = _TABLE.strip().split("\n")
    for start in range(0, len(lines), 5):
        head, question, values, phrases, note = lines[start : start + 5]
        kinds, key = head.split(": ")
        attr = _Attr(question, tuple(values.split("; ")), tuple(phrases.split("; ")), note)
        for kind in kinds.split(","):
            schema[kind][key] = attr
    return schema


@cache
def things() -> dict[str, list[Thing]]:
    """Return the sixty things, by kind."""
    """Build the knowledge base; the constant seed keeps it the same in every process."""
    rng = random.Random(20240607)
    starts = [a + b for a in "B D F G K L M N P R T V Z".split() for b in "a e i o u".split()]
    ends = "lmor ndis rket sorra mbel vanu ltis grin zan lora nnek rdo".split()
    rng.shuffle(starts)
    names = [start + ends[i % len(ends)] for i, start in enumerate(starts)]
    base: dict[str, list[Thing]] = {}
    for kind, attrs in attributes().items():
        base[kind] = []
        for number in range(PER_KIND):
            facts = {key: rng.choice(attr.values) for key, attr in attrs.items()}
            base[kind].append(Thing(names.pop(), kind, facts, number))
    return base


def says(thing: Thing, key: str, rng: random.Random | None = None) -> str:
    """Return a fact as a verb phrase; the plain wording without `rng`."""
    """Return the verb phrase for a fact: the plain one, or any one when given a generator."""
    phrases = attributes()[thing.kind][key].phrases
    return (rng.choice(phrases) if rng else phrases[0]).format(v=thing.facts[key])


def remark(thing: Thing, key: str) -> str:
    """Return the remark that goes with an attribute."""
    return attributes()[thing.kind][key].note
