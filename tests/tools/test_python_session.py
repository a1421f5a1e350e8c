"""One interpreter per episode: variables live, what kills it is told, and nothing stays when the episode ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from verl_agentic.sandbox.interface import CommandResult, Limits
from verl_agentic.sandbox.local.local_backend import LocalBackend
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.tools.python_session import RESTARTED, PythonSessionTool

LIMITS = Limits(wall_s=1.0, cpu_s=60, memory_mb=512, output_bytes=2_000)


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    pool = SandboxPool(LocalBackend(is_trusted=True), PoolConfig(size=2, warm=0))
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture
async def tool(pool: SandboxPool) -> AsyncIterator[PythonSessionTool]:
    tool = PythonSessionTool(pool, limits=LIMITS)
    yield tool
    await tool.close()


async def say(tool: PythonSessionTool, code: object) -> tuple[str, bool]:
    result = await tool.call({"code": code})
    return result.content, result.is_error


async def test_variables_functions_and_imports_live_from_call_to_call(tool: PythonSessionTool) -> None:
    assert await say(tool, "import math\nx = 837\ndef f(y): return x * y") == ("[no output]", False)
    assert await say(tool, "f(294)") == ("246078", False)
    assert await say(tool, "print(math.sqrt(x - 8))") == (str((837 - 8) ** 0.5), False)


async def test_an_exception_is_told_and_the_variables_stay(tool: PythonSessionTool) -> None:
    await say(tool, "x = 5")
    text, is_error = await say(tool, "print(x)\n1/0")
    assert is_error and text.startswith("5\nTraceback") and text.endswith("ZeroDivisionError: division by zero")
    assert await say(tool, "x") == ("5", False)
    assert "SyntaxError: '(' was never closed" in (await say(tool, "def broken("))[0]
    assert await say(tool, "x") == ("5", False)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("end", "text", "is_error"),
    [
        ("sys.exit()", "hi", False),
        ("sys.exit(0)", "hi", False),
        ("raise SystemExit", "hi", False),
        ("raise SystemExit('bye')", "hi\nbye", True),
        ("sys.exit(3)", "hi\nError: exit code 3", True),
        ("sys.exit(256)", "hi", False),
    ],
)
async def test_code_that_exits_keeps_its_output_and_the_variables_stay(
    tool: PythonSessionTool, end: str, text: str, is_error: bool
) -> None:
    assert await say(tool, f"x = 5\nprint('hi')\nimport sys\n{end}") == (text, is_error)
    assert await say(tool, "x") == ("5", False)


@pytest.mark.slow
async def test_code_that_hangs_is_stopped_and_the_loss_of_the_variables_is_told_with_it(
    tool: PythonSessionTool,
) -> None:
    await say(tool, "x = 5")
    text, is_error = await say(tool, "while True: pass")
    assert text.startswith("Error: the code was stopped after 1.") and text.endswith(RESTARTED) and is_error
    assert "NameError: name 'x' is not defined" in (await say(tool, "x"))[0]
    assert await say(tool, "x = 6; x + 1") == ("7", False)


async def test_an_interpreter_that_code_has_ended_is_replaced_and_the_next_answer_says_so(
    tool: PythonSessionTool,
) -> None:
    await say(tool, "x = 5")
    await say(tool, "import os\nos._exit(0)")
    assert await say(tool, "print('x' in globals())") == (f"False\n{RESTARTED}", False)
    assert await say(tool, "1 + 1") == ("2", False)


async def test_calls_of_one_turn_run_in_their_order(tool: PythonSessionTool) -> None:
    codes = ["import time; time.sleep(0.2); x = 1", "x += 1", "x * 10"]
    answers = await asyncio.gather(*(say(tool, code) for code in codes))
    assert answers == [("[no output]", False), ("[no output]", False), ("20", False)]


@pytest.mark.parametrize("arguments", [{}, {"code": 7}, {"code": "1", "more": 2}, {"source": "1"}])
async def test_wrong_arguments_are_told_and_cost_no_sandbox(
    tool: PythonSessionTool, pool: SandboxPool, arguments: dict[str, Any]
) -> None:
    result = await tool.call(arguments)
    assert (result.is_error, result.error_kind) == (
        True,
        "wrong_arguments",
    ) and '{"code": "<string>"}' in result.content
    assert pool.metrics()["created"] == 0


async def test_a_sandbox_is_leased_by_the_first_call_and_given_back_by_close(pool: SandboxPool) -> None:
    tool = PythonSessionTool(pool, limits=LIMITS)
    assert pool.metrics()["running"] == 0
    await say(tool, "1")
    assert pool.metrics()["running"] == 1
    await tool.close()
    assert pool.metrics()["running"] == 0
    await tool.close()  # twice does no harm


async def test_two_episodes_share_nothing(pool: SandboxPool) -> None:
    first, second = (PythonSessionTool(pool, limits=LIMITS) for _ in range(2))
    await say(first, "x = 1\nopen('f', 'w').write('secret')")
    assert await say(second, "import os; print('x' in globals(), os.path.exists('f'))") == ("False False", False)
    await first.close()
    await second.close()


async def test_after_a_cancelled_call_the_next_one_has_a_fresh_sandbox(
    pool: SandboxPool, tool: PythonSessionTool
) -> None:
    await say(tool, "x = 5")
    call = asyncio.ensure_future(tool.call({"code": "import time; time.sleep(30)"}))
    await asyncio.sleep(0.2)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert "NameError: name 'x' is not defined" in (await say(tool, "x"))[0]
    assert pool.metrics()["running"] == 1, "the old sandbox must have been given back"


class DyingSandbox:
    """Dies of memory in its first call, and with it all its sessions."""

    def __init__(self) -> None:
        self.is_dead = False

    async def open_session(self, kind: str, *, limits: Limits) -> DyingSandbox:
        assert not self.is_dead, "a dead sandbox opens no session"
        return self

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        self.is_dead = text == "eat"
        code = -9 if self.is_dead else 0
        return CommandResult(stdout="", stderr="", exit_code=code, timed_out=False, oom=self.is_dead, wall_s=0.1)

    async def close(self) -> None:
        assert not self.is_dead


async def test_code_that_eats_the_sandboxs_memory_costs_the_policy_its_variables_and_the_run_nothing() -> None:
    made: list[DyingSandbox] = []

    class Pool:
        @contextlib.asynccontextmanager
        async def lease(self) -> AsyncIterator[Any]:
            made.append(DyingSandbox())
            yield made[-1]

    tool = PythonSessionTool(Pool(), limits=LIMITS)
    assert await say(tool, "eat") == (f"Error: exit code -9\n{RESTARTED}", True)
    assert await say(tool, "1") == ("[no output]", False)
    assert [sandbox.is_dead for sandbox in made] == [True, False]
