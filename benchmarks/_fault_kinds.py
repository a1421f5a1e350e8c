"""Episodes that go wrong, each in its own way, and what must become of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.sandbox.interface import Limits, Sandbox
from verl_agentic.sandbox.pools.sandbox_pool import SandboxPool
from verl_agentic.tools.python import SCHEMA

ANSWERED, TIMEOUT, INFRA = StopReason.ANSWERED, StopReason.TIMEOUT, StopReason.INFRA_ERROR
LIMITS = Limits(wall_s=10.0, cpu_s=60, memory_mb=128, processes=16)
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "print(6 * 7)"}}\n</tool_call>'
MALFORMED = (
    "<tool_call>\n{nonsense\n</tool_call>",
    '<tool_call>\n{"name": "python", "arguments": {"code": "1"}',
    '<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "python", "arguments": {"code": 1}}\n</tool_call>',
    "<tool_call></tool_call>",
)
FLOOD = "a line of a log that never ends: 12345\n" * 250_000


@dataclass(frozen=True)
class Kind:
    """A way in which an episode goes, and how it must end."""

    name: str
    group: str
    """Category under which it is counted: `good`, `hangs`, `raises`, `loses_sandbox`, `floods` or `malformed`."""
    stop: StopReason
    fault: str = ""
    """Place and event of the fault: a name that `World` and `Policy` know."""
    always: bool = True
    """False: it happens in the first attempt only."""
    turns: Sequence[str] = (CALL, "It is 42.")
    in_sandbox: bool = False
    error_kind: str | None = None
    retries: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the episode that must be so."""

    def complaint(self, episode: Episode) -> str | None:
        """Returns what is wrong with how it ended; None when nothing is."""
        got = (episode.stop_reason, episode.error_kind, episode.retries)
        if got != (self.stop, self.error_kind, self.retries):
            return f"{self.name}: {got} ({episode.error})"
        trained = any(any(row.response_mask) for row in episode.trajectories)
        if trained == episode.is_void or (episode.reward.outcome == 1.0) == episode.is_void:
            return f"{self.name}: trained {trained}, void {episode.is_void}, reward {episode.reward}"
        numbers = episode.numbers()
        wrong = {key: numbers[key] for key, value in self.counts.items() if numbers[key] != value}
        return f"{self.name}: {wrong}" if wrong else None


def _broken(
    name: str, fault: str, *, error_kind: str = "env", retries: int = 1, in_sandbox: bool = False
) -> list[Kind]:
    """Returns a failure that happens once, which a retry mends, and one that always does."""
    group = "loses_sandbox" if in_sandbox else "raises"
    return [
        Kind(f"{name} once", group, ANSWERED, fault, always=False, in_sandbox=in_sandbox, retries=1),
        Kind(name, group, INFRA, fault, in_sandbox=in_sandbox, error_kind=error_kind, retries=1),
    ]


_LATE_CALL = {"call_error/tool_timeout": 1.0, "tool_calls": 1.0}
KINDS = [
    Kind("good", "good", ANSWERED, counts={"tool_calls": 1.0, "tool_errors": 0.0}),
    Kind("good in a sandbox", "good", ANSWERED, in_sandbox=True, counts={"tool_calls": 1.0, "tool_errors": 0.0}),
    Kind("the policy hangs", "hangs", TIMEOUT, "policy hangs"),
    Kind("the policy hangs and ignores its cancellation", "hangs", TIMEOUT, "policy ignores"),
    Kind("the step hangs", "hangs", TIMEOUT, "step hangs"),
    Kind("the step hangs and ignores its cancellation", "hangs", TIMEOUT, "step ignores"),
    Kind("a tool hangs", "hangs", ANSWERED, "tool hangs", counts=_LATE_CALL),
    Kind("a tool hangs and ignores its cancellation", "hangs", ANSWERED, "tool ignores", counts=_LATE_CALL),
    Kind("a tool blocks its thread", "hangs", ANSWERED, "tool blocks", counts=_LATE_CALL),
    Kind("the start hangs", "hangs", INFRA, "start hangs", error_kind="env", retries=1),
    Kind("the start hangs once", "hangs", ANSWERED, "start hangs", always=False, retries=1),
    Kind("the scorer hangs", "hangs", INFRA, "score hangs", error_kind="scoring"),
    Kind("the closing hangs", "hangs", ANSWERED, "close hangs"),
    Kind("the closing ignores its cancellation", "hangs", ANSWERED, "close ignores"),
    Kind("it never ends", "hangs", TIMEOUT, "step dawdles", turns=(CALL,)),
    *_broken("the step raises", "step raises"),
    *_broken("a tool raises", "tool raises"),
    *_broken("the start raises", "start raises"),
    *_broken("the environment cannot be made", "make raises"),
    *_broken("the step cancels itself", "step cancels"),
    *_broken("the step wants to end the process", "step exits"),
    *_broken("the server raises", "policy raises", error_kind="policy"),
    Kind("the scorer raises", "raises", INFRA, "score raises", error_kind="scoring"),
    Kind("the closing raises", "raises", ANSWERED, "close raises"),
    *_broken("the sandbox dies before a call", "sandbox dies before", error_kind="sandbox", in_sandbox=True),
    *_broken("the sandbox dies in a call", "sandbox dies in", error_kind="sandbox", in_sandbox=True),
    Kind("a flood", "floods", ANSWERED, "floods", counts={"clipped_observations": 1.0}),
    Kind(
        "malformed calls",
        "malformed",
        ANSWERED,
        turns=(*MALFORMED, CALL, "It is 42."),
        counts={"tool_calls": 6.0, "tool_errors": 5.0, "call_error/unknown_tool": 1.0, "call_error/unclosed": 1.0},
    ),
]


@dataclass
class Stage:
    """State that all episodes share."""

    tokenizer: Any
    pool: SandboxPool
    hang_s: float
    """Duration of a fault that ignores its cancellation."""
    release: threading.Event = field(default_factory=threading.Event)
    """Lets threads that hang go on; nothing else can end them."""

    async def hang(self, how: str) -> None:
        """Does not return in time."""
        if how == "blocks":
            await in_thread(self.release.wait)
        until = time.monotonic() + (self.hang_s if how == "ignores" else 3_600)
        while (left := until - time.monotonic()) > 0:
            if how == "ignores":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(left)
            else:
                await asyncio.sleep(left)


async def befall(stage: Stage, fault: str, where: str) -> None:
    """Lets happen what the fault says of this place."""
    place, _, what = fault.partition(" ")
    if place != where:
        return
    if what == "raises":
        raise ConnectionError(f"{where}: the world is gone")
    if what == "cancels":
        raise asyncio.CancelledError
    if what == "exits":
        sys.exit(1)
    if what == "dawdles":
        await asyncio.sleep(0.05)
    elif what in ("hangs", "ignores", "blocks"):
        await stage.hang(what)


class Policy:
    """Plays the turns of a kind, and fails where it says so."""

    def __init__(self, stage: Stage, kind: Kind) -> None:
        self._stage = stage
        self._kind = kind
        self._attempts: dict[str, int] = {}

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples the next turn."""
        turn = self._attempts[request_id] = self._attempts.get(request_id, -1) + 1
        if self._kind.always or len(self._attempts) == 1:
            await befall(self._stage, self._kind.fault, "policy")
        text = self._kind.turns[turn % len(self._kind.turns)]
        ids = [*self._stage.tokenizer.encode(text), self._stage.tokenizer.eos_token_id]
        return Completion(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason="stop")


class World(ToolEnv):
    """One attempt's environment: a python tool, with or without a sandbox, and a fault."""

    name = "python"
    schema = SCHEMA

    def __init__(self, row: EnvRow, stage: Stage, kind: Kind, *, fault: str, tool_timeout_s: float) -> None:
        super().__init__(row, [self], tool_timeout_s=tool_timeout_s)
        self._stage, self._kind, self._fault = stage, kind, fault
        self._stack = contextlib.AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._session: Any = None

    async def start(self) -> tuple[Message, ...]:
        """Takes a sandbox, where the kind has one."""
        await befall(self._stage, self._fault, "start")
        if self._kind.in_sandbox:
            self._sandbox = await self._stack.enter_async_context(self._stage.pool.lease())
            self._session = await self._sandbox.open_session("python", limits=LIMITS)
        return await super().start()

    async def step(self, action: Action) -> Observation:
        """Answers a turn."""
        if action.tool_calls:
            await befall(self._stage, self._fault, "step")
        return await super().step(action)

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Runs the code."""
        await befall(self._stage, self._fault, "tool")
        if self._fault == "floods":
            return ToolResult(FLOOD)
        if self._session is None:
            return ToolResult("42")
        if self._fault == "sandbox dies before":
            os.kill(_pid_of(self._sandbox), signal.SIGKILL)
        if self._fault == "sandbox dies in":
            asyncio.get_running_loop().call_later(0.2, os.kill, _pid_of(self._sandbox), signal.SIGKILL)
            await self._session.run("import time\ntime.sleep(60)", wall_s=LIMITS.wall_s)
        result = await self._session.run(arguments["code"], wall_s=LIMITS.wall_s)
        return ToolResult(result.stdout)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 for the answer."""
        await befall(self._stage, self._fault, "score")
        return Reward(float("42" in transcript.final_answer))

    async def close(self) -> None:
        """Gives the sandbox back."""
        await self._stack.aclose()
        await befall(self._stage, self._fault, "close")


def world_maker(stage: Stage, kind: Kind, *, tool_timeout_s: float) -> Callable[[EnvRow], World]:
    """Returns what makes the environments of one episode; a fault that happens once is gone in the second."""
    made = 0

    def make_env(row: EnvRow) -> World:
        nonlocal made
        made += 1
        fault = kind.fault if kind.always or made == 1 else ""
        if fault == "make raises":
            raise OSError("no place for an environment")
        return World(row, stage, kind, fault=fault, tool_timeout_s=tool_timeout_s)

    return make_env


def _pid_of(sandbox: Any) -> int:
    """Returns the number of the sandbox's first process, which only the descriptor that holds it knows."""
    lines = Path(f"/proc/self/fdinfo/{sandbox._life._descriptor}").read_text().splitlines()
    return int(json.loads(next(line.removeprefix("Pid:") for line in lines if line.startswith("Pid:"))))
