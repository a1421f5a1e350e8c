"""Web pages as an environment: the policy reads the accessibility tree, and clicks and types by the refs in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult


class ActionRefusedError(Exception):
    """The page could not carry out an action, such as a click on an element that is gone."""


class WebPage(Protocol):
    """A page in a browser with a task on it. `EnvError` means that the browser failed."""

    async def open(self) -> str:
        """Opens the page and returns the goal."""
        ...

    async def tree(self) -> str:
        """Returns the accessibility tree as text, with a ref for every element."""
        ...

    async def click(self, ref: str) -> None:
        """Clicks an element. Raises ActionRefusedError if it is impossible."""
        ...

    async def fill(self, ref: str, text: str) -> None:
        """Replaces the text of a field. Raises ActionRefusedError if it is impossible."""
        ...

    async def select(self, ref: str, option: str) -> None:
        """Chooses an option of a list by its label. Raises ActionRefusedError if it is impossible."""
        ...

    async def press(self, key: str) -> None:
        """Presses a key. Raises ActionRefusedError if it is unknown."""
        ...

    async def answer(self, text: str) -> None:
        """Gives an answer in words to the user of the page, where the task has one."""
        ...

    async def reward(self) -> float | None:
        """Returns the reward that the page gave; None while the task is open."""
        ...

    async def close(self) -> None:
        """Closes the page."""
        ...


class WebEnv(ToolEnv):
    """A page on which the policy clicks and types until the page ends the task.

    The outcome is 1 if the page gives its full reward of 1, else 0; `page_reward` in the info is the page's number.
    """

    def __init__(self, row: EnvRow, page: WebPage) -> None:
        """Makes the environment of a page that is not open yet."""
        # One call after the other: the order of actions matters.
        super().__init__(row, [self.click, self.type, self.select, self.press], max_parallel_calls=1)
        self._page = page
        self._reward: float | None = None

    async def start(self) -> tuple[Message, ...]:
        """Opens the page and returns its goal and its tree."""
        goal = await self._page.open()
        return (*self.row.prompt[:-1], Message("user", f"{goal}\n\n{await self._page.tree()}"))

    async def step(self, action: Action) -> Observation:
        """Carries out the calls in order; the page may end the task. A turn without a call is an answer."""
        if not action.tool_calls and self._reward is None:
            await self._page.answer(action.content if action.answer is None else action.answer)
            self._reward = await self._page.reward()
        observation = await super().step(action)
        if self._reward is None or observation.stop is not None:
            return observation
        return replace(observation, stop=StopReason.ENV_DONE)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the task is solved."""
        reward = self._reward or 0.0
        return Reward(float(reward >= 1), info={"page_reward": reward})

    async def close(self) -> None:
        """Closes the page."""
        await self._page.close()

    async def click(self, ref: str) -> ToolResult:
        """Clicks an element.

        Args:
            ref: the ref of the element.
        """
        return await self._run_action(lambda: self._page.click(ref))

    async def type(self, ref: str, text: str) -> ToolResult:
        """Replaces the text of a field.

        Args:
            ref: the ref of the field.
            text: the new text.
        """
        return await self._run_action(lambda: self._page.fill(ref, text))

    async def select(self, ref: str, option: str) -> ToolResult:
        """Chooses an option of a list.

        Args:
            ref: the ref of the list.
            option: the text of the option.
        """
        return await self._run_action(lambda: self._page.select(ref, option))

    async def press(self, key: str) -> ToolResult:
        """Presses a key.

        Args:
            key: its name, such as Enter, Tab or ArrowDown.
        """
        return await self._run_action(lambda: self._page.press(key))

    async def _run_action(self, doing: Callable[[], Awaitable[None]]) -> ToolResult:
        """Carries out an action and returns the tree after it."""
        try:
            if self._reward is not None:
                raise ActionRefusedError("the task is over")
            await doing()
        except ActionRefusedError as refused:
            return ToolResult(f"Error: {refused}", is_error=True, error_kind="invalid_action")
        self._reward = await self._page.reward()
        return ToolResult("The task is over." if self._reward is not None else await self._page.tree())
