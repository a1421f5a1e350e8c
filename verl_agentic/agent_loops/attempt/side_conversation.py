"""Side conversations of an episode: turns of the policy beside the agent's own conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verl_agentic.agent_loops.attempt.attempt import Attempt
from verl_agentic.agent_loops.attempt.exploration import Exploration
from verl_agentic.agent_loops.attempt.stopped import WITHOUT_ANSWER, Stopped
from verl_agentic.agent_loops.trace import timeline
from verl_agentic.errors import EnvError
from verl_agentic.tools.delegate import SUB_AGENT, NoAnswerError
from verl_agentic.types import Action, Message, NewRow, TurnLimits


def open_side(parent: Attempt) -> SideAttempt:
    """Returns a new side conversation of a running attempt. Its rows are among those of `Attempt.finish`."""
    parent.info["sub_agents"] += 1
    own = Attempt(
        setup=replace(parent.setup, exploration=Exploration()),
        row=parent.row,
        request_id=f"{parent.request_id}-side{len(parent.sides)}",
        agent=SUB_AGENT,
        label=timeline.SUB_AGENT,
        parent=parent,
    )
    parent.sides.append(own)
    return SideAttempt(parent, own)


class SideAttempt:
    """A side conversation: an attempt whose observations are given one by one."""

    def __init__(self, parent: Attempt, own: Attempt) -> None:
        self._parent, self._own = parent, own

    async def answer(self, new: NewRow | Sequence[Message], *, limits: TurnLimits) -> Action:
        """Samples a turn; see `env.SideConversation`."""
        parent, own, before = self._parent, self._own, self._own.num_sampled
        budgets = replace(parent.setup.limits, answer_reserve_tokens=0)
        if budgets.max_episode_tokens is not None:
            left = budgets.max_episode_tokens - parent.num_sampled
            budgets = replace(budgets, max_episode_tokens=max(1, left + before))
        own.setup = replace(own.setup, limits=budgets)
        try:
            return await own.converse(new, limits=limits)
        except Stopped as stop:
            if stop.reason not in WITHOUT_ANSWER:
                raise EnvError(f"a side conversation failed, got {stop.reason.value}: {stop.error}") from stop
            raise NoAnswerError(f"the conversation is over: {WITHOUT_ANSWER[stop.reason]}") from stop
        finally:
            parent.num_sampled += own.num_sampled - before
