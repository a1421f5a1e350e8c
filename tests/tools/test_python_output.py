"""Both Python tools print what `python main.py` prints: stdout, then stderr, without frames of the harness."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.base.types import ToolResult
from verl_agentic.sandbox.interface import Limits
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.tools.python import PythonTool
from verl_agentic.tools.python_session import PythonSessionTool

LIMITS = Limits(wall_s=20.0, cpu_s=20, memory_mb=512, output_bytes=8_000, processes=64)
_TEXT = (Path(__file__).parent / "printing_programs.txt").read_text()
PROGRAMS = dict(part.split("\n", 1) for part in _TEXT.split("=== ")[1:])
PROGRAMS["no last line break"] = "x = 0\nprint(1 / x + 1)"
PROGRAMS["carriage return"] = "print('a')\r\nx = 1 / 0\r\n"
LOCAL = pytest.param("local", marks=pytest.mark.slow)


@pytest_asyncio.fixture(params=["namespaces", LOCAL], scope="module", loop_scope="module")
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    options = {"is_trusted": True} if request.param == "local" else {}
    pool = SandboxPool(make_backend(request.param, **options), PoolConfig(size=2, warm=0))
    try:
        await pool.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    yield pool
    await pool.close()


async def run_tools(pool: SandboxPool, *codes: str, limits: Limits = LIMITS) -> tuple[ToolResult, ToolResult]:
    """Returns the results of the last piece: of the tool without state, and of one interpreter that ran them all."""
    session = PythonSessionTool(pool, limits=limits)
    try:
        results = [await session.call({"code": code}) for code in codes]
    finally:
        await session.close()
    return await PythonTool(pool, limits=limits).call({"code": codes[-1]}), results[-1]


def run_python(code: str, folder: Path) -> tuple[str, bool]:
    (folder / "main.py").write_bytes(code.encode())
    done = subprocess.run(
        [sys.executable, "-X", "int_max_str_digits=0", "-B", "main.py"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
    )
    gap = "\n" if done.stdout and not done.stdout.endswith("\n") else ""
    text = (done.stdout + gap + done.stderr).rstrip("\n").replace(f"{folder}/", "")
    return text or "[no output]", done.returncode != 0


def without_chance(text: str) -> str:
    return re.sub(r"\d+\.\d+s|0x[0-9a-f]+", "N", text)


@pytest.mark.sample(5, slow=30)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PROGRAMS)
async def test_both_tools_print_what_python_prints(pool: SandboxPool, name: str, tmp_path: Path) -> None:
    text, is_error = run_python(PROGRAMS[name], tmp_path)
    for result in await run_tools(pool, PROGRAMS[name]):
        assert without_chance(result.content) == without_chance(text)
        assert result.is_error == is_error


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("num_stdout", "num_stderr"), [(900, 200), (200, 900), (900, 900), (3_000, 3_000)])
async def test_both_streams_together_stay_within_the_limit(pool: SandboxPool, num_stdout: int, num_stderr: int) -> None:
    code = f"import sys\nprint('a' * {num_stdout} + 'END')\nprint('b' * {num_stderr} + 'END', file=sys.stderr)"
    for result in await run_tools(pool, code, limits=Limits(output_bytes=1_000)):
        assert result.content.count("END") == 2 and result.content.endswith("[output truncated]")
        assert result.content.startswith("aaa") and len(result.content) < 1_100


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("short", ["stdout", "stderr"])
async def test_a_short_stream_is_whole_beside_a_long_one(pool: SandboxPool, short: str) -> None:
    code = f"import sys\nfor s in (sys.stdout, sys.stderr): print('x' * (400 if s is sys.{short} else 10_000), file=s)"
    for result in await run_tools(pool, code, limits=Limits(output_bytes=1_000)):
        assert "x" * 400 in result.content.splitlines()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "code",
    [
        "import atexit\ndef f():\n    1 / 0\natexit.register(f)",
        "class A:\n    def __del__(self):\n        print('deleted', A)\na = A()\na.itself = a",
    ],
)
async def test_the_end_of_a_program_prints_what_python_prints(pool: SandboxPool, code: str, tmp_path: Path) -> None:
    result = await PythonTool(pool, limits=LIMITS).call({"code": code})
    assert without_chance(result.content) == without_chance(run_python(code, tmp_path)[0])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_session_keeps_its_module_and_tells_the_code_of_its_calls_apart(pool: SandboxPool) -> None:
    first = "import pickle, warnings\nwarnings.warn('w')\nclass A: pass\ndef f(x):\n    return 1 / x"
    _, again = await run_tools(pool, first, "pickle.loads(pickle.dumps(A())).__class__ is A\nwarnings.warn('w')")
    assert again.content == "main_2.py:2: UserWarning: w\n  warnings.warn('w')"
    _, failed = await run_tools(pool, first, "# a comment\nimport __main__\n__main__.f(0)")
    assert failed.content == (
        "Traceback (most recent call last):\n"
        '  File "main_2.py", line 3, in <module>\n    __main__.f(0)\n'
        '  File "main.py", line 5, in f\n    return 1 / x\n           ~~^~~\n'
        "ZeroDivisionError: division by zero"
    )


@pytest.mark.sample(4)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "code",
    [
        "class Code(int):\n    def __and__(self, other): return 0\nraise SystemExit(Code(3))",
        "class Code(int):\n    def __and__(self, other): return '0\\n0\\n'\nraise SystemExit(Code(3))",
        "raise SystemExit(2**70)",
        "import sys\nsys.stdout = sys.stderr = None\nraise ValueError",
        "import sys\nsys.stderr.close()\nraise ValueError",
        "import traceback\ntraceback.print_exception = lambda *_, **__: 1 / 0\nraise ValueError",
        "import sys\ndef hook(*_): raise SystemExit(0)\nsys.excepthook = hook\nraise ValueError",
        "class E(SystemExit):\n    @property\n    def code(self): raise KeyError\nraise E",
        "import os\nif os.fork() == 0:\n    raise SystemExit(0)\nos.wait()\nraise ValueError",
    ],
)
async def test_code_that_fails_cannot_pass_for_code_that_ran(pool: SandboxPool, code: str) -> None:
    for result in await run_tools(pool, code):
        assert result.is_error
    _, after = await run_tools(pool, code, "x = 1\nprint(f'{x}')" if "std" not in code else "x = 1")
    assert after.content in ("1", "[no output]") and not after.is_error
