"""Tests of my_env: its validation, and its answers to wrong calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from verl_agentic import Action, ToolCall, load_env_package
from verl_agentic.cli import main

FOLDER = str(Path(__file__).parent)


def test_it_validates() -> None:
    assert main(["env", "validate", FOLDER]) == 0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"thing": "unicorns"}, "Error: no 'unicorns' here; there are "),
        ({"thing": 7}, "Error: the arguments of 'look_up' do not fit its schema"),
        ({}, "Error: the arguments of 'look_up' do not fit its schema"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(arguments: dict, answer: str) -> None:
    package = load_env_package(FOLDER)
    assert package.make_rows is not None
    (row,) = package.make_rows(split="train", count=1, seed=0)
    call = Action(turn=0, text="", content="", tool_calls=(ToolCall("look_up", arguments),))
    (message,) = asyncio.run(package.make_env(row).step(call)).messages
    assert message.content.startswith(answer)
