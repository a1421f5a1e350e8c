"""Actions by which a policy tries to void its own failure, or to end the run, in every environment with a sandbox or a
judge. Whatever it does, its episode must be trained: neither void nor an exception."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.scorer import Scorer

LIMITS = EpisodeLimits(
    max_response_tokens=30_000,
    max_context_tokens=40_000,
    max_turns=6,
    max_observation_tokens=500,
    turn_timeout_s=20.0,
    episode_timeout_s=120.0,
    score_timeout_s=30.0,
    max_retries=0,
)
_LONG = "n" * 255
_FILL = "for p in /tmp/a /dev/shm/b ../c ./d; do dd if=/dev/zero of=$p bs=1M count=254; done"
_DEEP = "import os\nfor _ in range(2000):\n    os.mkdir('d' * 99)\n    os.chdir('d' * 99)"
COMMANDS = (
    f"truncate -s 60M big.txt; {_FILL}",
    f"truncate -s 60M big.txt; ({_FILL}) >/dev/null 2>&1 & sleep 1",
    f'python3 -c "{_DEEP}"',
    "for i in $(seq 300); do ln quill/__init__.py h$i.py; done; ln -s . loop; ln -sf /etc/passwd quill/texts.py",
    "rm quill/texts.py; mkfifo quill/texts.py; mkfifo pipe",
    "yes | head -c 200M; yes | head -c 100M >&2",
    "sleep 1000",
    "echo 'import time; time.sleep(1000)' >> quill/__init__.py",
    "echo 'print(\"x\" * 10**9)' >> quill/__init__.py",
    "setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & exit 3",
    ":(){ :|:& };:",
    "kill -9 -1; kill -9 1",
    f"touch {_LONG} $'\\xff\\xfe' $'a\\nb' {'é' * 127}; mkdir -p {'/'.join(['d' * 200] * 15)}",
    "rm -rf .git ..?* * ; cd ..; rmdir testbed; ln -s / testbed",
    "cd ..; mv testbed gone; mkfifo testbed",
    "chmod 000 . ..; chmod 000 quill/texts.py",
    "git config core.fsmonitor 'sleep 1000'; git config diff.external 'sleep 1000'; git config core.pager 'sleep 1000'",
    'python3 -c "x = []\nwhile 1: x.append(bytearray(1 << 24))"',
    "for i in $(seq 40000); do : > f$i; done",
    "exec 3<>/dev/tcp/127.0.0.1/1; ulimit -n 1; exec <&- >&- 2>&-",
)
PROGRAMS = (
    "import time\ntime.sleep(1000)",
    "while 1: pass",
    "print('x' * 10**9)",
    "import os\nwhile 1: os.fork()",
    "import os\nos.kill(-1, 9)",
    "import os, signal\nos.kill(os.getppid(), 9)",
    "x = []\nwhile 1: x.append(bytearray(1 << 24))",
    "while 1: open('f', 'ab').write(b'x' * 2**24)",
    "n = 0\nwhile 1:\n    n += 1\n    open(f'f{n}', 'w')",
    _DEEP,
    "import os\nos.mkfifo('p')\nopen('p')",
    "import os, shutil\nshutil.rmtree('.', ignore_errors=True)\nos.chmod('.', 0)",
    "raise SystemExit(3)",
    "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "import ctypes\nctypes.string_at(0)",
)
PATHS = (
    "n" * 280 + ".py",
    "é" * 140 + ".py",
    "/".join(["d" * 250] * 20) + "/m.py",
    "/".join("d" * 140) + "/m.py",
    "quill/__init__.py/x.py",
    "quill",
    "a\x07b.py",
    "../x.py",
)
WORDS = ("41 FILTER", "41 MODERATION", "41 INNER", "41 " + "long " * 3_000, "41 FINISH", "41 UNKNOWN")
_EDIT = "```\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```"


@dataclass(frozen=True)
class Hostile:
    """One hostile episode."""

    env_id: str
    turns: Sequence[Message | str]
    config: dict[str, Any]


def draw(rng: random.Random, env_id: str) -> Hostile:
    """Returns a random hostile episode of an environment."""
    return _DRAWS[env_id](rng)


async def play(hostile: Hostile, *, codec: Any, tokenizer: Any, judge_url: str) -> str:
    """Plays an episode and returns how it ended: `trained`, `void: ...` or `raised: ...`."""
    left = list(hostile.turns)
    setup = scripted(lambda _: left.pop(0) if left else "", codec=codec, tokenizer=tokenizer, limits=LIMITS)
    try:
        if hostile.env_id == "judge":
            return await _play_judged(setup, judge_url)
        package = load_env_package(hostile.env_id)
        assert package.make_rows is not None
        row = package.make_rows(split="train", count=1, seed=0)[0]
        episode = await run_episode(
            row, make_env=lambda row: package.make_env(row, **hostile.config), setup=setup, request_id=hostile.env_id
        )
    except Exception as cause:
        return f"raised: {type(cause).__name__}: {cause}"
    return f"void: {episode.error}" if episode.is_void else "trained"


async def _play_judged(setup: Any, url: str) -> str:
    row = EnvRow(prompt=(Message("user", "What is 6 * 7?"),), ground_truth="42")
    one = {"endpoint": url, "models": "m", "retries": 0, "timeout_s": 5.0}
    components = [{"use": "exact_match"}, {"use": "judge", "kind": "outcome", "options": one}]
    episode = await run_episode(
        row, make_env=lambda row: ToolEnv(row, []), setup=_with_rubric(setup), request_id="judge"
    )
    scorer = Scorer(Rubric.from_mapping({"components": components, "on_error": "stop"}), workers=1)
    try:
        score = await scorer.score(to_sample(episode, row, id="judge"))
    finally:
        scorer.close()
    return f"void: {score.void}" if episode.is_void or score.void is not None else "trained"


@contextlib.contextmanager
def filtering_judge() -> Iterator[str]:
    """Provides the URL of a judge whose provider refuses some contents, in the forms of real ones."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Filter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


class _Filter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Refuses what is filtered, and answers all else with a word."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status, answer = self._answer(text)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, text: str) -> tuple[int, dict[str, Any]]:
        moderation = {"code": 403, "message": "no", "metadata": {"reasons": ["hate"], "flagged_input": "41"}}
        if "FILTER" in text:
            inner = {"code": "ResponsibleAIPolicyViolation"}
            return 400, {"error": {"message": "no", "code": "content_filter", "innererror": inner}}
        if "MODERATION" in text:
            return 403, {"error": moderation}
        if "INNER" in text:
            return 200, {"error": moderation, "choices": []}
        if "FINISH" in text:
            return 200, {"choices": [{"finish_reason": "content_filter", "message": {"content": None}}]}
        if "UNKNOWN" in text:
            return 403, {"detail": "Forbidden"}
        if len(text) > 10_000:
            return 400, {"error": {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "no"}}
        return 200, {"choices": [{"finish_reason": "stop", "message": {"content": "yes"}}]}

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


def _with_rubric(setup: Any) -> Any:
    from dataclasses import replace

    return replace(setup, has_rubric=True)


def _turn(*calls: tuple[str, dict[str, Any]]) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall(name, arguments) for name, arguments in calls))


def _draw_swe(rng: random.Random) -> Hostile:
    scaffold = rng.choice(("editor", "bash", "r2e"))
    tool, argument = ("execute_bash", "cmd") if scaffold == "r2e" else ("bash", "command")
    editor = {"editor": "str_replace_editor", "r2e": "file_editor"}.get(scaffold)
    turns: list[Message | str] = []
    for _ in range(rng.randint(1, 2)):
        command = (tool, {argument: rng.choice(COMMANDS)})
        turns.append(_turn(*[command] * rng.choice((1, 1, 1, 16))))
    if editor is not None:
        create = {"command": "create", "path": rng.choice(PATHS), "file_text": "x = 1"}
        turns.append(_turn((editor, create), (editor, {"command": "view", "path": "pipe"})))
    if scaffold == "r2e":
        turns.append(_turn(("search", {"search_term": "x", "path": "pipe"})))
    submits = {"r2e": ("finish", {"command": "submit"}), "editor": ("submit", {})}
    marker = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    turns += [_turn(submits.get(scaffold, (tool, {argument: marker})))] * 2
    return Hostile("swe", turns, {"scaffold": scaffold, "command_timeout_s": 3.0, "grade_unfinished": True})


def _draw_swe_edit(rng: random.Random) -> Hostile:
    if rng.random() < 0.5:
        answer = _EDIT.format(path=rng.choice(PATHS), search="", replace="x = 1")
    else:
        answer = _EDIT.format(path="quill/hostile.py", search="", replace=rng.choice(PROGRAMS))
    return Hostile("swe_edit", [answer], {})


def _draw_code_tests(rng: random.Random) -> Hostile:
    program = rng.choice(PROGRAMS)
    calls = [_turn(*[("run_tests", {"code": rng.choice(PROGRAMS)})] * rng.choice((1, 8)))]
    return Hostile("code_tests", [*calls, f"```python\n{program}\n```"], {})


def _draw_python_math(rng: random.Random) -> Hostile:
    turns = [_turn(*[("python", {"code": rng.choice(PROGRAMS)})] * rng.choice((1, 4))) for _ in range(3)]
    return Hostile(
        "python_math", [*turns, r"\boxed{" + "(" * 400 + "}"], {"code_timeout_s": 2.0, "stateful": rng.random() < 0.5}
    )


def _draw_repo_search(rng: random.Random) -> Hostile:
    calls = [("grep", {"pattern": rng.choice(("(a+)+$", "x" * 5_000, "(" * 500)), "path": rng.choice(PATHS)})]
    return Hostile("repo_search", [_turn(*calls), _turn(("read", {"path": rng.choice(PATHS)})), ""], {})


def _draw_judge(rng: random.Random) -> Hostile:
    return Hostile("judge", [rng.choice(WORDS)], {})


_DRAWS = {
    "swe": _draw_swe,
    "swe_edit": _draw_swe_edit,
    "code_tests": _draw_code_tests,
    "python_math": _draw_python_math,
    "repo_search": _draw_repo_search,
    "judge": _draw_judge,
}


async def play_many(
    count: int, *, codec: Any, tokenizer: Any, seed: int, at_once: int = 4
) -> list[tuple[Hostile, str]]:
    """Plays random hostile episodes of all environments, some at a time; returns how each ended."""
    rng, slots, ids = random.Random(seed), asyncio.Semaphore(at_once), sorted(_DRAWS)
    drawn = [draw(rng, ids[number % len(ids)]) for number in range(count)]
    with filtering_judge() as url:

        async def one(hostile: Hostile) -> tuple[Hostile, str]:
            async with slots:
                return hostile, await play(hostile, codec=codec, tokenizer=tokenizer, judge_url=url)

        return list(await asyncio.gather(*map(one, drawn)))
