"""Reads commands: ALFWorld's sentences, and the steps of VirtualHome's programs."""

from __future__ import annotations

import re

from .house import House, class_of

_SPACES = re.compile(r"\s+")
_STEP = re.compile(r"\[(\w+)\]((?:\s*<[^<>]+>\s*\(\d+\))*)")
_ARGUMENT = re.compile(r"<([^<>]+)>\s*\((\d+)\)")
_PUT = re.compile(r"(?:put|move|place) (.+?) (?:in/on|into|onto|in|on|to) (.+)")
_VERBS = {"WALK": "go to", "FIND": "go to", "OPEN": "open", "CLOSE": "close", "SWITCHON": "use"}
_WITH = {"WASH": "clean", "HEAT": "heat", "COOL": "cool"}
_PUTS = ("PUT", "PUTBACK", "PUTIN", "PUTON")


def read_command(text: str) -> str:
    """Returns a sentence in the form of `House.admissible`: lower case, without articles, `put X in/on Y`."""
    words = _SPACES.sub(" ", text.strip().casefold())
    words = re.sub(r"\b(the|a|an) ", "", words)
    put = _PUT.fullmatch(words)
    return f"put {put[1]} in/on {put[2]}" if put else words


def read_steps(program: str) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the steps of a program: verb and names, such as `("GRAB", ("apple 1",))`."""
    return [
        (step[1].upper(), tuple(f"{name.strip().casefold()} {number}" for name, number in _ARGUMENT.findall(step[2])))
        for step in _STEP.finditer(program)
    ]


def command_of(step: tuple[str, tuple[str, ...]], house: House) -> str:
    """Returns the command of a step in the present state; empty if the step has no meaning here."""
    verb, names = step
    if verb in _VERBS and len(names) == 1:
        return f"{_VERBS[verb]} {names[0]}"
    if verb == "GRAB" and len(names) == 1:
        return f"take {names[0]} from {house.things.get(names[0], '')}"
    if verb in _PUTS and len(names) == 2:
        return f"put {names[0]} in/on {names[1]}"
    if verb in _WITH and names:
        return f"{_WITH[verb]} {names[0]} with {names[1] if len(names) > 1 else house.place}"
    return ""


def step_of(command: str) -> str:
    """Returns an admissible command as a step of a program.

    Raises:
        ValueError: programs have no such step.
    """
    verb, _, rest = command.partition(" ")
    first, _, second = re.sub(r" (from|in/on|with) ", "|", rest).partition("|")
    steps = {"go": ("WALK", first.removeprefix("to ")), "take": ("GRAB", first), "use": ("SWITCHON", first)}
    steps |= {"open": ("OPEN", first), "close": ("CLOSE", first), "put": ("PUTBACK", first, second)}
    steps |= {phrase: (name, first, second) for name, phrase in _WITH.items()}
    if verb not in steps:
        raise ValueError(f"programs have no step for {command!r}")
    name, *names = steps[verb]
    return " ".join([f"[{name}]", *(f"<{class_of(thing)}> ({thing.rpartition(' ')[2]})" for thing in names)])
