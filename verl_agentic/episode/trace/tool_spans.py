"""The span of an environment's step, and those of the tool calls in it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from verl_agentic.base.tools.tool_env import call_watch
from verl_agentic.base.types import Action, Observation, ToolCall
from verl_agentic.episode.trace import timeline as activity


class StepWatch:
    """Tracks the calls of one step, if the environment reports them."""

    def __init__(self, action: Action, *, tool_names: Sequence[str], turn: int) -> None:
        """Makes a watch that has not started; unknown tools share one name."""
        self._action, self._tool_names, self._turn = action, frozenset(tool_names), turn
        self._started = self._ended = 0.0
        self._has_seen = False

    def begin(self) -> None:
        """Starts the step."""
        self._started = time.monotonic()

    def end(self) -> None:
        self._ended = time.monotonic()

    @property
    def label(self) -> str:
        """The tools that the step calls, each once."""
        return "+".join(dict.fromkeys(map(self.name, self._action.tool_calls)))

    def name(self, call: ToolCall) -> str:
        """Returns the name that a call is counted under."""
        return call.name if call.name in self._tool_names else activity.UNKNOWN_TOOL

    def call(self, call: ToolCall) -> contextlib.AbstractContextManager[None]:
        """Returns the span of a call that starts now."""
        self._has_seen = True
        return activity.span("tool", label=self.name(call), turn=self._turn)

    def answered(self, observation: Observation) -> None:
        """Adds the spans of calls that were not watched.

        An environment with durations (`Message.elapsed_s`) does not report start times, so its calls start with the
        step. Without durations, nothing is added.
        """
        timeline, calls = activity.current(), self._action.tool_calls
        if self._has_seen or timeline is None or not calls:
            return
        timed = [message for message in observation.messages if message.role == "tool" and message.elapsed_s > 0]
        for message in timed:
            name = message.name if message.name in self._tool_names else activity.UNKNOWN_TOOL
            end = min(self._started + message.elapsed_s, self._ended)
            timeline.add("tool", label=name, turn=self._turn, start=self._started, end=end)
        if not timed:
            timeline.add("tool", label=self.label, turn=self._turn, start=self._started, end=self._ended)


@contextlib.contextmanager
def watched_step(action: Action, *, tool_names: Sequence[str], label: str) -> Iterator[StepWatch]:
    """Records the span of a step, and lets `ToolEnv` report its running calls.

    Args:
        action: what the environment carries out.
        tool_names: names of existing tools.
        label: label of a sub-agent's step, whose calls have no turn; else the called tools.
    """
    watch = StepWatch(action, tool_names=tool_names, turn=activity.NO_TURN if label else action.turn)
    token = call_watch.set(watch.call)
    try:
        with activity.span("step", label=label or watch.label, turn=action.turn):
            watch.begin()
            yield watch
            watch.end()
    finally:
        call_watch.reset(token)
