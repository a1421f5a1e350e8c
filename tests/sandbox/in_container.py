"""Runs in a container: what a user of it gets by default, and tests of this project; prints JSON.

python in_container.py [-k EXPRESSION TEST ...]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.base.types import Action, Message, ToolCall
from verl_agentic.episode.env_package import load_env
from verl_agentic.sandbox.pools.backends import probe_all
from verl_agentic.sandbox.pools.process_pool import shared_pool

_CODE = "import os\nprint(37 * 84, os.getuid() == {user}, os.listdir('.'))"


class _Outcomes:
    """Counts the tests by what became of them, and keeps the failures."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.skipped:
            self.counts[report.outcome] += 1
        if report.failed:
            self.failures.append(f"{report.nodeid} {report.longreprtext[-2000:]}")


async def _call_tool() -> dict[str, Any]:
    """Calls the tool of the quickstart's environment as it is by default, and tells in what it ran."""
    env = load_env("python_math")(EnvRow(prompt=(Message("user", "What is 37*84?"),), ground_truth="3108"))
    code = {"code": _CODE.format(user=os.getuid())}
    try:
        step = await env.step(Action(turn=0, text="", content="", tool_calls=(ToolCall("python", code),)))
    except SandboxUnavailableError as error:
        return {"error": str(error)}
    return {"answer": step.messages[0].content, "backend": shared_pool(at_least=None)._pool._backend.name}


async def _look() -> dict[str, Any]:
    probes = [asdict(probe) for probe in await probe_all()]
    return {"user": os.getuid(), "probes": probes, **await _call_tool()}


def _test(arguments: list[str]) -> dict[str, Any]:
    outcomes = _Outcomes()
    # No conftest and no other plugins: some need libraries that the image does not have.
    pytest.main(["-q", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "--noconftest", *arguments], [outcomes])
    return {"counts": outcomes.counts, "failures": outcomes.failures}


if __name__ == "__main__":
    found = asyncio.run(_look())
    if sys.argv[1:]:
        found |= _test(sys.argv[1:])
    print("\n" + json.dumps(found))
