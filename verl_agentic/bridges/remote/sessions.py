"""The sessions of an environment server: one living environment each, with a lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from verl_agentic.base.deadlines import OverrunError, in_thread, within
from verl_agentic.base.env import Env, Guides, HasStateKey, PlaysConversations, optional, require_selection
from verl_agentic.base.errors import (
    AgenticError,
    ConfigError,
    DataError,
    EnvBusyError,
    EnvError,
    EnvUnavailableError,
    ScoringError,
    boundary,
)
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Observation, Reward
from verl_agentic.bridges.remote.wire import SERVICE, failure_of, to_action, to_messages, to_row, to_transcript
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.rewards.sample import Sample

logger = logging.getLogger(__name__)
_CANCEL_GRACE_S = 5.0
_SHARE_OF_CLIENT = 0.9  # of its deadline: what is late here is told before it gives up
_MAX_REAP_INTERVAL_S = 1.0


class EnvServerConfig(Settings):
    """Limits of an environment server."""

    max_sessions: int = setting(256, min=1)
    """Maximum number of living environments; a client that wants one more waits and tries again."""
    lease_s: float = setting(120.0, above=0)
    """Time after which a session without any sign of its client is closed, in seconds. Clients give a sign three times
    as often."""
    retry_after_s: float = setting(1.0, above=0)
    """Wait that a full server asks of its clients, in seconds."""
    close_timeout_s: float = setting(30.0, above=0)
    """Deadline of closing an environment, in seconds."""
    max_request_mb: int = setting(64, min=1)
    """Maximum size of a request, in MiB."""
    token: str = ""
    """Required bearer token; empty: none."""
    client_config: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Options of the environment and of its rows that a client may set -> the values that it may choose. Without
    values: any number, and true, false and null. A client cannot choose text that the operator has not written, because
    text may be an address of code, a command or a path."""


class _Session:
    def __init__(self, expires: float) -> None:
        self.expires = expires
        self.env: Env | None = None
        self.number = -1
        self.call: asyncio.Task[Any] | None = None
        """The last call; a repetition of its number gets the same answer."""
        self.tools: list[Mapping[str, Any]] = []
        """Schemas that the client knows."""
        self.closing: asyncio.Task[None] | None = None


class EnvSessions:
    """The server without HTTP."""

    def __init__(
        self, package: EnvPackage, *, env_config: Mapping[str, Any] | None = None, config: EnvServerConfig | None = None
    ) -> None:
        """Makes the server.

        Args:
            package: the environment.
            env_config: keyword arguments of `make_env`; those that a client may set are added to them.
            config: limits.
        """
        self.config = config or EnvServerConfig()
        self._package = package
        self._env_config = dict(env_config or {})
        self._sessions: dict[str, _Session] = {}
        self._counts: Counter[str] = Counter()
        self._lag_s = 0.0
        self._started = time.monotonic()
        self._reaper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the reaper of sessions whose lease has ended."""
        self._reaper = asyncio.create_task(self._reap_sessions())

    async def close(self) -> None:
        """Closes all environments."""
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        await asyncio.gather(*(self._close_session(name) for name in list(self._sessions)), return_exceptions=True)

    def health(self) -> dict[str, Any]:
        """Returns the present load."""
        sessions = list(self._sessions.values())
        counted = {name: self._counts[name] for name in ("started", "closed", "expired", "refused", "failed")}
        return {
            "status": "ok",
            "service": SERVICE,
            "env": self._package.env_id,
            "sessions": len(sessions),
            "max_sessions": self.config.max_sessions,
            "running_calls": sum(s.call is not None and not s.call.done() for s in sessions),
            "event_loop_lag_s": round(self._lag_s, 4),
            "lease_s": self.config.lease_s,
            "uptime_s": round(time.monotonic() - self._started, 1),
            **counted,
        }

    def renew(self, names: Iterable[str]) -> None:
        """Renews the leases of sessions; unknown ones are ignored."""
        for name in names:
            if (session := self._sessions.get(name)) is not None:
                session.expires = time.monotonic() + self.config.lease_s

    async def answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Carries out a call and returns its answer; a failure is an answer too."""
        try:
            return {"result": await self._run_call(call)}
        except EnvBusyError as error:
            self._counts["refused"] += 1
            return {**failure_of(error), "retry_after_s": self.config.retry_after_s}
        except AgenticError as error:
            self._counts["failed"] += 1
            logger.warning("%s of a session failed", call.get("op"), exc_info=error)
            return failure_of(error)

    async def _run_call(self, call: Mapping[str, Any]) -> Any:
        op, name, data = call.get("op"), call.get("session"), call.get("data")
        if not isinstance(op, str) or not isinstance(name, str) or not isinstance(data, Mapping):
            raise DataError(f"a call must have op, session and data, got {sorted(call)}; see wire.py")
        if op in _PACKAGE_OPS:
            with boundary(EnvError, f"{op} of the environment"):
                return await _PACKAGE_OPS[op](self, data)
        if op == "close":
            return await self._close_session(name)
        if op not in _SESSION_OPS:
            raise DataError(f"unknown call, got {op!r}; use one of {sorted({*_SESSION_OPS, *_PACKAGE_OPS, 'close'})}")
        session = self._get_session(name, is_start=op == "start")
        task = self._begin_call(session, op, call.get("number"), data)
        await asyncio.wait({task})
        if task.cancelled():
            raise EnvUnavailableError(f"session {name} was closed during its {op}, got no result; ask for a new one")
        return task.result()

    def _get_session(self, name: str, *, is_start: bool) -> _Session:
        """Returns the session; a start makes it."""
        session = self._sessions.get(name)
        if session is None and is_start:
            if len(self._sessions) >= self.config.max_sessions:
                raise EnvBusyError(
                    f"the environment server has at most {self.config.max_sessions} sessions, got one more; raise "
                    "--max-sessions, or add servers"
                )
            session = self._sessions[name] = _Session(0.0)
            self._counts["started"] += 1
        if session is None or session.closing is not None:
            raise EnvUnavailableError(
                f"the server has no session {name}; its lease of {self.config.lease_s:g} s ended, or the server was "
                "started again"
            )
        self.renew([name])
        return session

    def _begin_call(self, session: _Session, op: str, number: Any, data: Mapping[str, Any]) -> asyncio.Task[Any]:
        """Returns the task of a call: a new one, or that of the same call before."""
        if session.call is not None and number == session.number:
            return session.call
        if number != session.number + 1 or (session.call is not None and not session.call.done()):
            raise EnvError(f"calls of a session come one after the other, got {number!r} after {session.number}")
        session.number = number
        session.call = asyncio.create_task(_SESSION_OPS[op](self, session, data))
        session.call.add_done_callback(_retrieve_exception)
        return session.call

    # Calls of a session. What they say in errors is what the episode loop says of a local environment.

    async def _start_env(self, session: _Session, data: Mapping[str, Any]) -> dict[str, Any]:
        with boundary(DataError, "reading the row"):
            row, config = to_row(data["row"]), self._config_of(data["config"])
        with boundary(EnvError, "making the environment"):
            env = session.env = self._package.configured(config)(row)
        _refuse_agent(env)
        with boundary(EnvError, "starting the environment"):
            messages = await env.start()
        _refuse_sub_agents(env)
        return {"messages": messages, "guides": optional(env, Guides) is not None, **_write_outlook(session, env)}

    async def _step_env(self, session: _Session, data: Mapping[str, Any]) -> dict[str, Any]:
        env = _get_env(session)
        with boundary(EnvError, "reading the action"):
            action = to_action(data["action"])
        observation = await _run_in_time(env.step(action), data, "the environment's step", EnvError)
        if not isinstance(observation, Observation):
            raise EnvError(f"a step must return an Observation, got {observation!r}; fix the environment")
        return {"observation": observation, **_write_outlook(session, env)}

    async def _score_episode(self, session: _Session, data: Mapping[str, Any]) -> Reward:
        env = _get_env(session)
        with boundary(ScoringError, "reading the transcript"):
            transcript = to_transcript(data["transcript"])
        reward = await _run_in_time(env.score(transcript), data, "scoring", ScoringError)
        if not isinstance(reward, Reward):
            raise ScoringError(f"a scorer must return a Reward, got {reward!r}; fix it")
        return reward

    async def _write_guidance(self, session: _Session, data: Mapping[str, Any]) -> str:
        with boundary(EnvError, "the environment's guidance"):
            return await cast("Any", _get_env(session)).guidance(to_transcript(data["transcript"]))

    # Calls of the package.

    async def _select_answer(self, data: Mapping[str, Any]) -> int | None:
        env = self._package.make_env(to_row(data["row"]), **self._config_of(data["config"]))
        try:
            return await require_selection(env).select(data["answers"])
        finally:
            await within(env.close(), self.config.close_timeout_s, what="closing the environment of a selection")

    async def _make_rows(self, data: Mapping[str, Any]) -> Any:
        options = dict(data)
        split, count, seed = (options.pop(name) for name in ("split", "count", "seed"))
        if not isinstance(split, str) or not split.isidentifier() or type(count) is not int or type(seed) is not int:
            raise DataError(f"rows need a split by name, and whole numbers, got {split!r}, {count!r} and {seed!r}")
        options = self._check_options(options)
        return await in_thread(self._get_function("make_rows"), split=split, count=count, seed=seed, **options)

    async def _solve_row(self, data: Mapping[str, Any]) -> Any:
        solution = self._get_function("gold")
        return await in_thread(lambda: solution(to_row(data["row"]))(to_messages(data["messages"])))

    async def _describe_sample(self, data: Mapping[str, Any]) -> str | None:
        return await in_thread(self._get_function("describe"), Sample.from_dict(data["sample"]))

    def _config_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of `make_env`: the operator's, and those of a client."""
        return {**self._env_config, **self._check_options(config)}

    def _check_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the options of a client. Raises ConfigError if it may not set one of them."""
        for name, value in options.items():
            choices = self.config.client_config.get(name)
            is_number = value is None or isinstance(value, (bool, int, float))
            if choices is None or not (any(_is_equal(value, choice) for choice in choices) if choices else is_number):
                raise ConfigError(
                    f"the server does not let its clients set {name} to {value!r}; set it with --config at the server, "
                    f"or allow it there with --client-config {name} (numbers) or {name}=VALUE"
                )
        return options

    def _get_function(self, name: str) -> Callable[..., Any]:
        function = getattr(self._package, name)
        if function is None:
            raise ConfigError(f"the environment {self._package.env_id!r} has no {name}, got a call of it; add it")
        return function

    # Ends.

    async def _close_session(self, name: str) -> None:
        """Closes a session's environment; an unknown session is closed already."""
        if name in self._sessions:
            await asyncio.shield(self._begin_close(name))

    def _begin_close(self, name: str) -> asyncio.Task[None]:
        """Returns the task that closes a session; there is one, whoever asks for it."""
        session = self._sessions[name]
        if session.closing is None:
            session.closing = asyncio.create_task(self._end_session(name, session))
            session.closing.add_done_callback(_retrieve_exception)
        return session.closing

    async def _end_session(self, name: str, session: _Session) -> None:
        try:
            if session.call is not None and not session.call.done():
                session.call.cancel()
                await asyncio.wait({session.call}, timeout=_CANCEL_GRACE_S)
            if session.env is not None:
                with boundary(EnvError, "closing the environment"):
                    await within(session.env.close(), self.config.close_timeout_s, what="closing an environment")
        finally:
            self._counts["closed"] += 1
            del self._sessions[name]

    async def _reap_sessions(self) -> None:
        interval_s = min(self.config.lease_s / 4, _MAX_REAP_INTERVAL_S)
        while True:
            before = time.monotonic()
            await asyncio.sleep(interval_s)
            self._lag_s = time.monotonic() - before - interval_s
            for name, session in list(self._sessions.items()):
                session.expires += self._lag_s  # a loop that was held up has read no signs of life
                if session.expires < time.monotonic() and session.closing is None:
                    self._counts["expired"] += 1
                    logger.warning("session %s is closed: no sign of its client for its lease", name)
                    self._begin_close(name)


_SESSION_OPS: Mapping[str, Callable[[EnvSessions, _Session, Mapping[str, Any]], Any]] = {
    "start": EnvSessions._start_env,
    "step": EnvSessions._step_env,
    "score": EnvSessions._score_episode,
    "guidance": EnvSessions._write_guidance,
}
_PACKAGE_OPS: Mapping[str, Callable[[EnvSessions, Mapping[str, Any]], Awaitable[Any]]] = {
    "select": EnvSessions._select_answer,
    "rows": EnvSessions._make_rows,
    "gold": EnvSessions._solve_row,
    "describe": EnvSessions._describe_sample,
}


async def _run_in_time(work: Awaitable[Any], data: Mapping[str, Any], work_name: str, error: type[AgenticError]) -> Any:
    """Returns the result of work within the client's deadline, so that code in a sandbox here shares it.

    Raises:
        DataError: code has spent the time.
        error: the work has failed.
    """

    async def guarded() -> Any:
        with boundary(error, work_name):
            return await work

    client_s = data.get("left_s")
    if not isinstance(client_s, int | float):
        return await guarded()
    try:
        return await within(guarded(), _SHARE_OF_CLIENT * client_s, what=work_name)
    except OverrunError as cause:
        if cause.by_code:
            raise DataError(str(cause)) from cause
        await asyncio.sleep(client_s)  # the client's own deadline comes first, and names what was late
        raise EnvError(str(cause)) from cause


def _is_equal(value: Any, choice: Any) -> bool:
    return type(value) is type(choice) and value == choice


def _get_env(session: _Session) -> Env:
    if session.env is None:
        raise EnvError("the session has no environment, got a call after a failed start; close it")
    return session.env


def _write_outlook(session: _Session, env: Env) -> dict[str, Any]:
    """Returns what the next turn begins with: the tools if they have changed, and the state's key if there is one."""
    outlook: dict[str, Any] = {}
    with boundary(EnvError, "the prompt and the tools of the environment"):
        schemas = list_schemas(env.tools)
    if schemas != session.tools:
        outlook["tools"] = session.tools = schemas
    if (keyed := optional(env, HasStateKey)) is not None:
        with boundary(EnvError, "the environment's state_key"):
            outlook["state_key"] = keyed.state_key()
    return outlook


def _refuse_agent(env: Env) -> None:
    """Raises ConfigError for an agent, before it is started."""
    if optional(env, PlaysConversations) is not None:
        raise ConfigError(
            "an agent asks the policy of the trainer for several conversations, and a client of `env serve` plays one "
            f"by steps, got {type(env).__name__}; set agentic.env to this environment in the trainer. Its agent may "
            "run on another machine: agentic.env_config.agent takes the http address of a server that starts it"
        )


def _refuse_sub_agents(env: Env) -> None:
    has_own = getattr(type(env), "use_sub_agents", ToolEnv.use_sub_agents) is not ToolEnv.use_sub_agents
    if has_own or any(isinstance(tool, DelegateTool) for tool in env.tools):
        raise ConfigError(
            f"sub-agents do not work over a server, because they are turns of the policy, got {type(env).__name__} "
            "with a tool that delegates; use the environment without a server, or without that tool"
        )


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Marks the exception as retrieved: its client may have gone."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
