"""An environment with a tool, rows, and scripts of a policy that searches three times and then answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message, ToolCall

_ENV = '''
"""Finds the same text, whatever is searched for. Of the sessions of a prompt, every second one succeeds."""

from collections import Counter

from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import ToolResult
from verl_agentic.base.types import Reward

SCORED = Counter()


class Search:
    name = "search"
    schema = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}

    async def call(self, arguments):
        return ToolResult("found " * 6)


class Env(ToolEnv):
    def __init__(self, row):
        super().__init__(row, [Search()])

    async def score(self, transcript):
        SCORED[self.row.prompt[-1].content] += 1
        return Reward(float(SCORED[self.row.prompt[-1].content] % 2))


make_env = Env
'''
TAGS = """
kind: tags
calls: [{tool: search, argument: query, tags: [<search>, </search>]}]
answer: {tags: [<answer>, </answer>]}
stop: [</search>, </answer>]
observation: "\\n<information>{content}</information>\\n"
invalid_action: Search or answer.
"""
"""A protocol whose turns end with a text."""
SEARCH = "<search>here</search>"
ROWS = [EnvRow(prompt=(Message("user", f"Where is number {number}?"),), ground_truth="") for number in range(64)]
_SEARCHES = 3


def make_searching_env(folder: Path) -> Path:
    """Writes the environment into the folder; returns its own folder."""
    env = folder / f"searching_{folder.name}"  # modules are kept by the folder's name
    env.mkdir()
    (env / "__init__.py").write_text(_ENV)
    return env


def call_script(messages: Sequence[Message]) -> Message:
    """Returns the next turn in the chat protocol."""
    if _is_searching(messages):
        return Message("assistant", "", tool_calls=(ToolCall("search", {"query": "here"}),))
    return Message("assistant", "there")


def tag_script(messages: Sequence[Message]) -> str:
    """Returns the next turn in the protocol `TAGS`."""
    return SEARCH if _is_searching(messages) else "<answer>there</answer>"


def _is_searching(messages: Sequence[Message]) -> bool:
    return sum(message.role == "assistant" for message in messages) < _SEARCHES
