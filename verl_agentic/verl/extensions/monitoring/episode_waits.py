"""Patches verl: agent-loop workers report what their episodes wait for, in the run's folder and in the log when stuck.

Wraps `_run_agent_loop` and `_compute_score` of `AgentLoopWorker`, `ToolAgentLoop._call_tool`, and `generate` of
`LLMServerClient` and `FullyAsyncLLMServerClient`.

A separate thread checks, so it can also report a blocked event loop with the stack of its thread. verl's own agent
loops are covered: their turns, tool calls and rewards. The timeline of every episode is in
`extra_fields["episode_time"]` of its last row.

    agentic.waiting: {stuck_after_s: 120, stuck_generate_s: 600, report_every_s: 10}
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from verl_agentic.episode.trace import timeline as activity
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.observe.live.loop_watch import LoopWatch
from verl_agentic.observe.live.stuck_episodes import StuckWatch, WaitingOptions, states
from verl_agentic.observe.live.time_ledger import EpisodeTime
from verl_agentic.verl.extensions.monitoring.monitoring_features import waiting_options
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.run_dir import run_dir_of
from verl_agentic.verl.sections import AGENTIC

logger = logging.getLogger(__name__)
EPISODE_TIME = "episode_time"
"""Key of `extra_fields`: `EpisodeTime.to_dict()` in the last row of an episode, None in the others."""
_BLOCKED_S = 10.0
_FRAMES = 6
"""Number of innermost frames reported of a blocking stack."""


class WaitingReporter:
    """The thread that monitors the episodes of this process."""

    def __init__(
        self, options: WaitingOptions, *, loop: asyncio.AbstractEventLoop, folder: Path | None, blocked_s: float
    ) -> None:
        """Must be made in the thread of the event loop; writes files only if there is a folder."""
        self._options, self._loop, self._blocked_s = options, loop, blocked_s
        self._loop_watch = LoopWatch(loop, blocked_s=blocked_s)
        name = f"waiting-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}.json"
        self._path = None if folder is None else folder / name
        self._watch = StuckWatch(options)
        self._is_told = False
        self._next_report = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_checks, name="verl_agentic waiting", daemon=True)

    def start(self) -> None:
        """Starts to check, until `stop` or the end of the event loop."""
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Stops checking, and removes the file."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        self._remove_file()
        atexit.unregister(self.stop)

    def look(self) -> None:
        """Checks once: warns of stuck episodes, and writes the file when due."""
        now = time.monotonic()
        episodes = activity.running()
        for line in self._watch.warnings(episodes, now=now):
            logger.warning("stuck: %s", line)
        self._look_at_loop(now)
        if now >= self._next_report:
            self._next_report = now + self._options.report_every_s
            self._write_report(states(episodes, now=now, now_at=time.time()), len(episodes), now)

    def _run_checks(self) -> None:
        stuck_s = min(self._options.stuck_after_s, self._options.stuck_generate_s)
        every_s = min(self._options.report_every_s, stuck_s / 4, self._blocked_s / 4, 2.0)
        while not self._stopped.wait(every_s) and not self._loop.is_closed():
            try:
                self.look()
            except Exception:
                logger.exception("what episodes wait for cannot be told")
        self._remove_file()

    def _look_at_loop(self, now: float) -> None:
        """Reports the stack of the event loop once, when it is blocked."""
        was_told, self._is_told = self._is_told, self._loop_watch.look(now)
        if self._is_told and not was_told:
            logger.warning(
                "stuck: the event loop of this worker, and with it all its %d episodes, has been blocked for %.0f s "
                "by\n%s",
                len(activity.running()),
                self._loop_watch.lag_s(now),
                "".join(self._loop_watch.stack[-_FRAMES:]) or "a thread that is gone",
            )

    def _write_report(self, episodes: list[dict[str, Any]], num_running: int, now: float) -> None:
        if self._path is None:
            return
        if not episodes:
            self._remove_file()
            return
        report = {
            "time": time.time(),
            "report_every_s": self._options.report_every_s,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "num_running": num_running,
            "loop_lag_s": self._loop_watch.lag_s(now),
            "blocked_by": [line.strip() for line in self._loop_watch.stack[-_FRAMES:]],
            "episodes": episodes,
        }
        scratch = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(report), encoding="utf-8")
            scratch.replace(self._path)
        except OSError as cause:  # a full disk is no reason to end a run
            logger.warning("what episodes wait for is not in %s: %s", self._path, cause)

    def _remove_file(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


_reporters: dict[int, WaitingReporter] = {}
"""By event loop."""


def _watch_this_process(config: Any) -> None:
    loop = asyncio.get_running_loop()
    if id(loop) in _reporters:
        return
    options = waiting_options(config)
    _reporters[id(loop)] = WaitingReporter(options, loop=loop, folder=run_dir_of(config), blocked_s=_BLOCKED_S)
    _reporters[id(loop)].start()


def _env_of(worker: Any) -> str:
    """Returns the environment of the run. It is read once per worker, because each read takes a while."""
    state = state_of(worker)
    if state.env_id is None:
        state.env_id = str(OmegaConf.select(worker.config, f"{AGENTIC}.env") or "")
    return state.env_id


@wrap(AgentLoopWorker, "_run_agent_loop")
async def _run_watched(
    run: Any, /, self: Any, sampling_params: Any, trajectory: Mapping[str, Any], *, agent_name: str, **kwargs: Any
) -> Any:
    _watch_this_process(self.config)
    env = ""
    if agent_name == "env_agent":
        env = str(extra_of(kwargs.get("extra_info")).get("env") or _env_of(self))
    with activity.recording(
        uid=str(kwargs.get("uid", "")),
        session=int(kwargs.get("session_id") or 0),
        agent=agent_name,
        env=env,
        step=int(trajectory["step"]),
        is_validation=bool(trajectory["validate"]),
    ):
        return await run(self, sampling_params, trajectory, agent_name=agent_name, **kwargs)


@wrap(AgentLoopWorker, "_compute_score")
async def _compute_score_watched(compute: Any, self: Any, outputs: list[Any], *args: Any, **kwargs: Any) -> None:
    """Records the wait for verl's reward worker, and sends the episode's timeline with its last row."""
    is_waiting = outputs[-1].reward_score is None and self.reward_loop_worker_handles is not None
    with activity.span("reward") if is_waiting else contextlib.nullcontext():
        await compute(self, outputs, *args, **kwargs)
    timeline, spent = activity.current(), None
    if timeline is not None:
        spent = EpisodeTime(began_at=timeline.began_at, ended_at=time.time(), spans=timeline.spans).to_dict()
    for output in outputs:  # the same keys in every row, because verl drops columns that a row lacks
        output.extra_fields[EPISODE_TIME] = spent if output is outputs[-1] else None


@wrap(LLMServerClient, "generate")
@wrap(FullyAsyncLLMServerClient, "generate")
async def _generate_watched(generate: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if activity.is_inside("generate"):  # our own loop has said so, or this is verl's resuming client
        return await generate(self, *args, **kwargs)
    with activity.span("generate", turn=_num_turns()):
        return await generate(self, *args, **kwargs)


@wrap(ToolAgentLoop, "_call_tool")
async def _call_tool_watched(call: Any, self: Any, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:
    tools = getattr(agent_data, "_active_tools", self.tools)
    label = tool_call.name if tool_call.name in tools else activity.UNKNOWN_TOOL
    with activity.span("tool", label=label, turn=_num_turns() - 1):
        return await call(self, tool_call, tools_kwargs, agent_data)


def _num_turns() -> int:
    timeline = activity.current()
    return 0 if timeline is None else sum(span.kind == "generate" for span in timeline.spans)
