"""The sub-agent that finds code for the policy: grep, glob and read, many calls in few turns (Fast Context)."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic import DelegateTool
from verl_agentic.sandbox.interface import CommandResult
from verl_agentic.tools.repository_search import INSTRUCTIONS, RepositorySearch

from .repo_box import RepoBox

MAX_CALLS = 8
"""Calls of a turn, as in the environment `repo_search`."""
_SEARCH_S = 10.0
_TURN_S = 150.0  # with the time to generate it
_DESCRIPTION = (
    "Asks a helper, who finds code in the repository and returns files and lines as path:first-last. It knows nothing "
    "but your question and changes nothing. The repository is searched as it is now."
)


def search_helper(repo: RepoBox, *, max_turns: int) -> DelegateTool:
    """Returns the tool that gives a question about a repository to a sub-agent with `max_turns` turns."""

    async def run(script: str, arguments: Sequence[str]) -> CommandResult:
        return await repo.command(script, *arguments, wall_s=_SEARCH_S)

    return DelegateTool(
        RepositorySearch(run).tools,
        max_turns=max_turns,
        max_calls=MAX_CALLS,
        instructions=INSTRUCTIONS.format(turns=max_turns, calls=MAX_CALLS),
        description=_DESCRIPTION,
        timeout_s=_TURN_S * max_turns,
    )
