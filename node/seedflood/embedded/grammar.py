"""A small generated language: short reviews whose label depends on how they are put together, not on one word.

The project needs a task and a text corpus of its own, so both are generated. A review is one to three sentences about
one subject. What makes it good or bad takes more than spotting a word:

    negation      the soup was not bad            i did not enjoy the script
    context       the beer was cold (good)        the soup was cold (bad)
    contrast      the bed was soft , but the staff was rude         (what follows "but" decides)
                  the bed was soft , even though the staff was rude (what precedes "even though" decides)
    hearsay       a friend said the pool was filthy                 (decides nothing)
    distraction   we came on a monday ; the great hall was across the street

The label words of the fine-tuning task ("great", "terrible") appear only where they say nothing ("the great hall"), and
text for pre-training never continues the task's prompt. So a pre-trained model knows what a good review is. It says so
when it is asked in the words of `VERDICTS`, but not in those of the task.

Standard library only. All choices come from `random.Random(seed).random()`, the one method whose numbers Python
promises to keep; the other methods may change between versions.
"""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Choice = TypeVar("Choice")

TASK_TEMPLATE = "{sentence} . it was"
LABEL_WORDS = ("terrible", "great")
"""In the order of the labels: 0 is bad, 1 is good."""

ROWS_SEED = 1
TRAIN_ROWS = 2048
VALIDATION_ROWS = 512


@dataclass(frozen=True, slots=True)
class Topic:
    """What reviews are about. place: its name. good and bad: adjectives that fit every aspect."""

    place: str
    aspects: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question after a review, with the answers that pre-training gives by sentiment. words: in the order of the
    labels."""

    template: str
    words: tuple[str, str]


SUBJECTS = (
    Topic(
        "cinema",
        ("plot", "acting", "script", "ending", "music", "dialogue", "picture"),
        ("gripping", "witty", "moving", "clever", "charming", "original"),
        ("dull", "clumsy", "shallow", "tedious", "silly", "lifeless"),
    ),
    Topic(
        "restaurant",
        ("food", "soup", "beer", "dessert", "bread", "menu", "waiter"),
        ("tasty", "fresh", "delicious", "generous", "tempting", "refined"),
        ("bland", "greasy", "stale", "soggy", "sour", "careless"),
    ),
    Topic(
        "hotel",
        ("room", "bed", "staff", "view", "pool", "breakfast", "lobby"),
        ("spotless", "cosy", "friendly", "bright", "elegant", "welcoming"),
        ("dirty", "shabby", "rude", "damp", "gloomy", "filthy"),
    ),
    Topic(
        "concert",
        ("band", "singer", "sound", "choir", "stage", "drummer", "crowd"),
        ("lively", "tender", "precise", "joyful", "inspired", "graceful"),
        ("shrill", "sloppy", "tired", "harsh", "wooden", "hollow"),
    ),
)

GOOD = ("good", "lovely", "superb", "excellent", "pleasant", "wonderful")
BAD = ("bad", "awful", "poor", "dreadful", "horrible", "mediocre")

GOOD_IN_CONTEXT = {"cold": ("beer",), "warm": ("soup", "bread", "pool"), "soft": ("bed",), "quiet": ("room", "view")}
BAD_IN_CONTEXT = {"cold": ("soup", "room"), "warm": ("beer",), "soft": ("bread",), "quiet": ("crowd", "sound")}
"""Adjectives that are good for one aspect and bad for another."""

LIKED = ("loved", "enjoyed", "admired", "adored")
DISLIKED = ("hated", "regretted", "disliked", "endured")
LIKE = ("love", "enjoy", "admire", "like")
DISLIKE = ("hate", "regret", "dislike", "mind")

LINKS = ("was", "seemed", "felt", "looked")
DEGREES = ("really", "very", "quite", "rather", "truly", "so")
NEGATIONS = ("was not", "was never", "was hardly", "was far from", "was anything but", "did not seem")
SPEAKERS = ("a friend", "my sister", "the guide", "one critic", "our neighbour")
CLAIMS = ("said", "thought", "wrote", "claimed")
COMPANIONS = ("alone", "with my sister", "with two friends", "with a neighbour", "with the children")
DAYS = ("monday", "tuesday", "friday", "sunday")
WEATHER = ("raining", "snowing", "windy", "sunny")
THINGS = ("clock", "hall", "storm", "bridge", "fire")

VERDICTS = (
    Question("{sentence} . verdict :", ("negative", "positive")),
    Question("{sentence} . stars :", ("one", "five")),
    Question("{sentence} . would i return ?", ("no", "yes")),
    Question("{sentence} . on the whole it was", ("disappointing", "rewarding")),
)


class Dice:
    """Choices from one seed, the same on every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return choices[int(self._random() * len(choices))]


def review(dice: Dice, is_good: bool) -> str:
    """A review of this sentiment: what the reviewer says, and perhaps a sentence that says nothing."""
    subject = dice.pick(SUBJECTS)
    sentences = [_judgement(dice, subject, is_good)]
    if dice.chance(0.25):
        sentences.append(_clause(dice, subject, dice.pick(subject.aspects), is_good))
    if dice.chance(0.35):
        sentences.insert(int(dice.chance(0.3)), _distraction(dice, subject))
    return " . ".join(sentences)


def rows(seed: int, counts: Sequence[int]) -> list[list[dict[str, str | int]]]:
    """Splits of {"sentence", "label"} rows, each with as many good rows as bad ones. No sentence occurs twice in all of
    them."""
    dice = Dice(seed)
    seen: set[str] = set()
    splits: list[list[dict[str, str | int]]] = []
    for count in counts:
        split: list[dict[str, str | int]] = []
        while len(split) < count:
            label = len(split) % 2
            sentence = review(dice, bool(label))
            if sentence not in seen:
                seen.add(sentence)
                split.append({"sentence": sentence, "label": label})
        splits.append(split)
    return splits


def texts(seed: int, held_out: Container[str] = frozenset()) -> Iterator[str]:
    """Endless text for pre-training: reviews, most of them followed by a verdict or by something unrelated.

    held_out: sentences of the task, which are never used.
    """
    dice = Dice(seed)
    while True:
        is_good = dice.chance(0.5)
        sentence = review(dice, is_good)
        if sentence in held_out:
            continue
        if dice.chance(0.75):
            verdict = dice.pick(VERDICTS)
            yield verdict.template.format(sentence=sentence) + " " + verdict.words[is_good]
        elif dice.chance(0.6):
            yield f"{sentence} . {_unrelated(dice)}"
        else:
            yield sentence


def place_of(sentence: str) -> int:
    """Which of the subjects a review is about: no aspect belongs to two of them."""
    words = set(sentence.split())
    return next(k for k, subject in enumerate(SUBJECTS) if words & set(subject.aspects))


def words() -> list[str]:
    """Every word and sign of the language, sorted."""
    dice = Dice(0)
    stream = texts(0)
    found = {word for _ in range(20_000) for word in next(stream).split()}
    found.update(word for _ in range(20_000) for word in review(dice, dice.chance(0.5)).split())
    return sorted(found)


def _judgement(dice: Dice, subject: Topic, is_good: bool) -> str:
    """One clause, or two about different aspects of which one decides."""
    aspect = dice.pick(subject.aspects)
    other_aspect = dice.pick([word for word in subject.aspects if word != aspect])
    decides = _clause(dice, subject, aspect, is_good)
    opposite = _clause(dice, subject, other_aspect, not is_good)
    return dice.pick(
        (
            decides,
            decides,
            f"{opposite} , but {decides}",
            f"although {opposite} , {decides}",
            f"{decides} , even though {opposite}",
        )
    )


def _clause(dice: Dice, subject: Topic, aspect: str, is_good: bool) -> str:
    """What the reviewer says of one aspect."""
    if dice.chance(0.7):
        return _description(dice, subject, aspect, is_good)
    if dice.chance(0.7):
        return f"i {dice.pick(LIKED if is_good else DISLIKED)} the {aspect}"
    return f"i did not {dice.pick(DISLIKE if is_good else LIKE)} the {aspect}"


def _description(dice: Dice, subject: Topic, aspect: str, is_good: bool) -> str:
    """What anyone can say of one aspect."""
    if dice.chance(0.25):
        return f"the {aspect} {dice.pick(NEGATIONS)} {_adjective(dice, subject, aspect, not is_good)}"
    degree = f"{dice.pick(DEGREES)} " if dice.chance(0.4) else ""
    return f"the {aspect} {dice.pick(LINKS)} {degree}{_adjective(dice, subject, aspect, is_good)}"


def _adjective(dice: Dice, subject: Topic, aspect: str, is_good: bool) -> str:
    in_context = GOOD_IN_CONTEXT if is_good else BAD_IN_CONTEXT
    fitting = [word for word, aspects in in_context.items() if aspect in aspects]
    if fitting and dice.chance(0.3):
        return dice.pick(fitting)
    if dice.chance(0.4):
        return dice.pick(GOOD if is_good else BAD)
    return dice.pick(subject.good if is_good else subject.bad)


def _distraction(dice: Dice, subject: Topic) -> str:
    """A sentence that says nothing about the sentiment, whatever its words."""
    hearsay = _description(dice, subject, dice.pick(subject.aspects), dice.chance(0.5))
    return dice.pick(
        (
            f"we came {dice.pick(COMPANIONS)}",
            f"we were there on a {dice.pick(DAYS)}",
            f"the {subject.place} is near the {dice.pick(LABEL_WORDS)} {dice.pick(THINGS)}",
            f"{dice.pick(SPEAKERS)} {dice.pick(CLAIMS)} {hearsay}",
        )
    )


def _unrelated(dice: Dice) -> str:
    """An ending that says nothing about the sentiment either, with words of a prompt and the label words in it."""
    return dice.pick(
        (
            f"outside it was {dice.pick(WEATHER)}",
            f"that day it was {dice.pick(DAYS)}",
            f"on the way we saw a {dice.pick(LABEL_WORDS)} {dice.pick(THINGS)}",
        )
    )
