"""The kinds of questions. The last wording of each is held out: only test rows have it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from .draw import Draw

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh".split()  # noqa: SIM905
_WEEKDAYS_FROM, _WEEKDAYS = datetime.date(1900, 1, 1), 50_000
_DAYS_FROM, _DAYS = datetime.date(1990, 1, 1), 12_000


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question with its answer."""

    wordings: tuple[str, ...]
    """Ways to ask it; the last one is held out."""
    answer: str
    code: str
    """Python that prints the answer."""
    guesses: tuple[str, ...] = field(default=())
    """Wrong answers that look right; empty: numbers of about the right size."""


def letters(draw: Draw) -> Question:
    """Asks for the number of times that a letter is in a word."""
    word = draw.word()
    letter = draw.one_of(word)
    return Question(
        wordings=(
            f'How many times does the letter "{letter}" occur in the word "{word}"?',
            f'How many letters "{letter}" are in "{word}"?',
            f'Count the letter "{letter}" in the word "{word}".',
            f"How often does {word} have the letter {letter}?",
            f"In {word}, how many times do you see the letter {letter}?",
            f"How many {letter}'s are there in {word}?",
        ),
        answer=str(word.count(letter)),
        code=f'print("{word}".count("{letter}"))',
    )


def backwards(draw: Draw) -> Question:
    """Asks for a word spelled backwards."""
    word = draw.word()
    shuffled = ("".join(draw.rng.sample(word, len(word))), word)
    return Question(
        wordings=(
            f'Write the word "{word}" backwards.',
            f'What is "{word}" spelled backwards?',
            f'Reverse the letters of the word "{word}".',
            f"Spell {word} backwards.",
            f"Write {word} in reverse.",
            f"How is {word} spelled from its last letter to its first?",
        ),
        answer=word[::-1],
        code=f'print("{word}"[::-1])',
        guesses=shuffled,
    )


def position(draw: Draw) -> Question:
    """Asks for the letter at a place of a word."""
    word = draw.word()
    place = draw.rng.randint(1, len(word) - 1)
    ordinal = _ORDINALS[place]
    return Question(
        wordings=(
            f'What is the {ordinal} letter of the word "{word}"?',
            f'Which letter is the {ordinal} one in "{word}"?',
            f'Name the {ordinal} letter of "{word}".',
            f"Which letter of {word} comes {ordinal}?",
            f"Give me the {ordinal} letter in {word}.",
            f"Look at the word {word}. What is its {ordinal} letter?",
        ),
        answer=word[place],
        code=f'print("{word}"[{place}])',
        guesses=tuple(sorted(set(word))),
    )


def sums(draw: Draw) -> Question:
    """Asks for the sum of two numbers of five digits."""
    a, b, (name, other), things = draw.number(10_234, 98_765), draw.number(10_234, 98_765), draw.names(), draw.things()
    return Question(
        wordings=(
            f"{name} has {a} {things} and {other} has {b} {things}. How many {things} do they have together?",
            f"A town has {a} {things}, another town has {b} {things}. How many {things} do both towns have?",
            f"A shop sold {a} {things} last year and {b} {things} this year. How many is that in total?",
            f"There are {a} {things} in one warehouse and {b} in another. What is the total number of {things}?",
        ),
        answer=str(a + b),
        code=f"print({a} + {b})",
    )


def differences(draw: Draw) -> Question:
    """Asks for the difference of two numbers of five digits."""
    a, b = sorted((draw.number(10_234, 98_765), draw.number(10_234, 98_765)), reverse=True)
    (name, other), things = draw.names(), draw.things()
    return Question(
        wordings=(
            f"{name} had {a} {things} and gave {b} of them to {other}. How many {things} does {name} still have?",
            f"A shop had {a} {things} and sold {b} of them. How many {things} are left?",
            f"{name} has {a} {things} and {other} has {b}. How many more {things} does {name} have?",
            f"Of {a} {things}, {b} were lost. How many {things} remain?",
        ),
        answer=str(a - b),
        code=f"print({a} - {b})",
    )


def products(draw: Draw) -> Question:
    """Asks for a number of three digits times one of two."""
    a, b, (name, _), things = draw.number(112, 989), draw.number(12, 98), draw.names(), draw.things()
    return Question(
        wordings=(
            f"{name} has {b} boxes. There are {a} {things} in each box. How many {things} does {name} have?",
            f"A factory makes {a} {things} in an hour. How many {things} does it make in {b} hours?",
            f"{name} buys {a} {things}. Each of them costs {b} dollars. How many dollars does {name} pay?",
            f"A ship carries {b} containers with {a} {things} in each of them. How many {things} does it carry?",
        ),
        answer=str(a * b),
        code=f"print({a} * {b})",
    )


def two_steps(draw: Draw) -> Question:
    """Asks for a product less a number."""
    a, b, (name, other), things = draw.number(112, 989), draw.number(12, 98), draw.names(), draw.things()
    c = draw.number(100, a * b // 2)
    return Question(
        wordings=(
            f"{name} has {b} boxes with {a} {things} in each of them. {name} gives {c} {things} to {other}. "
            f"How many {things} are left?",
            f"A factory makes {a} {things} in an hour and works for {b} hours. Then {c} {things} are sold. "
            f"How many {things} remain?",
            f"A library bought {b} crates of {a} {things} each and returned {c} {things}. How many {things} "
            f"did it keep?",
            f"{name} packs {a} {things} a day for {b} days, but {c} {things} break. How many whole {things} are there?",
        ),
        answer=str(a * b - c),
        code=f"print({a} * {b} - {c})",
    )


def weekdays(draw: Draw) -> Question:
    """Asks for the day of the week of a date."""
    day = draw.date(_WEEKDAYS_FROM, _WEEKDAYS)
    names = tuple(f"{datetime.date(2024, 1, number):%A}" for number in range(1, 8))
    return Question(
        wordings=(
            f"On which day of the week was {day}?",
            f"What day of the week was {day}?",
            f"Which weekday was {day}?",
            f"{day} was what day of the week?",
        ),
        answer=f"{day:%A}",
        code=f'from datetime import date\nprint(date.fromisoformat("{day}").strftime("%A"))',
        guesses=names,
    )


def days(draw: Draw) -> Question:
    """Asks for the number of days between two dates."""
    first = draw.date(_DAYS_FROM, _DAYS)
    last = draw.date(first + datetime.timedelta(20), 880)
    dates = [f'date.fromisoformat("{day}")' for day in (first, last)]
    return Question(
        wordings=(
            f"How many days are there from {first} to {last}?",
            f"How many days after {first} is {last}?",
            f"Count the days between {first} and {last}.",
            f"It is {first}. In how many days is it {last}?",
        ),
        answer=str((last - first).days),
        code=f"from datetime import date\nprint(abs(({dates[0]} - {dates[1]}).days))",
    )


KINDS: dict[str, Callable[[Draw], Question]] = {
    kind.__name__: kind
    for kind in (letters, backwards, position, sums, differences, products, two_steps, weekdays, days)
}
"""Name -> function that draws a question."""
