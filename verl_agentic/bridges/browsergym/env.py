"""The environment `browsergym`: a page of BrowserGym, whose synchronous API runs in a thread of its own.

The calls follow `browsergym.core` 0.14.3: `reset(seed=)`, `step(action: str)`, and the keys of its observations.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError, MissingDependencyError
from verl_agentic.bridges.web_env import ActionRefusedError, WebEnv

T = TypeVar("T")


class BrowserGymPage:
    """A page of BrowserGym. Its refs are BrowserGym's `bid`."""

    def __init__(self, env_id: str, seed: int) -> None:
        """Makes a page that is not open yet."""
        self._env_id, self._seed = env_id, seed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browsergym")  # its API allows one thread
        self._env: Any = None
        self._observed: dict[str, Any] = {}
        self._reward: float | None = None

    async def open(self) -> str:
        """Starts the browser and returns the goal."""

        def start() -> None:
            _import_benchmark(self._env_id)
            import gymnasium

            self._env = gymnasium.make(self._env_id, headless=True)
            self._observed, _ = self._env.reset(seed=self._seed)

        await self._run_in_thread(start)
        goal = self._observed.get("goal_object") or ({"type": "text", "text": self._observed.get("goal", "")},)
        return "\n".join(part["text"] for part in goal if part.get("type") == "text")

    async def tree(self) -> str:
        """Returns the accessibility tree."""
        flatten = importlib.import_module("browsergym.utils.obs").flatten_axtree_to_str
        return await self._run_in_thread(lambda: flatten(self._observed["axtree_object"]))

    async def click(self, ref: str) -> None:
        """Clicks an element."""
        await self._run_action(f"click({ref!r})")

    async def fill(self, ref: str, text: str) -> None:
        """Replaces the text of a field."""
        await self._run_action(f"fill({ref!r}, {text!r})")

    async def select(self, ref: str, option: str) -> None:
        """Chooses an option of a list."""
        await self._run_action(f"select_option({ref!r}, {option!r})")

    async def press(self, key: str) -> None:
        """Presses a key on the element that has the focus."""
        await self._run_action(f"press({self._observed.get('focused_element_bid') or ''!r}, {key!r})")

    async def answer(self, text: str) -> None:
        """Sends a message to the user; tasks that ask for information read it."""
        await self._run_action(f"send_msg_to_user({text!r})")

    async def reward(self) -> float | None:
        """Returns the reward; None while the task is open."""
        return self._reward

    async def close(self) -> None:
        """Closes the browser and ends the thread."""
        try:
            if self._env is not None:
                await self._run_in_thread(self._env.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run_action(self, action: str) -> None:
        def step() -> None:
            self._observed, reward, terminated, truncated, _ = self._env.step(action)
            if terminated or truncated:
                self._reward = float(reward)

        await self._run_in_thread(step)
        if error := self._observed.get("last_action_error"):
            raise ActionRefusedError(str(error).splitlines()[0])

    async def _run_in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def make_env(row: EnvRow) -> WebEnv:
    """Returns the environment of one episode. Raises DataError if the row names no id."""
    env_id, seed = row.extra.get("env_id"), row.extra.get("seed")
    if not isinstance(env_id, str) or not env_id.startswith("browsergym/") or not isinstance(seed, int):
        raise DataError(
            f"a row of browsergym needs env_id (browsergym/...) and seed in extra_info, got {dict(row.extra)!r}; use "
            "make_rows"
        )
    return WebEnv(row, BrowserGymPage(env_id, seed))


def _import_benchmark(env_id: str) -> None:
    """Imports the package that registers an id: `browsergym/webarena.310` is one of `browsergym.webarena`."""
    benchmark = env_id.removeprefix("browsergym/").partition(".")[0]
    try:
        importlib.import_module(f"browsergym.{benchmark}")
    except ImportError as cause:
        raise MissingDependencyError(
            f"{env_id} is not installed, got {cause}; pip install browsergym-{benchmark}"
        ) from cause
