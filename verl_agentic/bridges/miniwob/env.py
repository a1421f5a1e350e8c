"""The environment `miniwob`: one page of MiniWoB++ in a browser context of its own, without network."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError, EnvError, MissingDependencyError
from verl_agentic.bridges.web_env import ActionRefusedError, WebEnv

from .browser import browser_of_this_loop

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

T = TypeVar("T")
_ACTION_TIMEOUT_S = 20.0
_VIEWPORT = {"width": 500, "height": 400}
# The page's own clock would end an episode after 10 s and lower its reward with every second.
_BEGIN = """seed => {
    Math.seedrandom(String(seed)); core.EPISODE_MAX_TIME = 1e9; core.startEpisodeReal();
    for (const id of ['reward-display', 'click-canvas', 'sync-task-cover']) document.getElementById(id)?.remove();
    const goal = core.getUtterance();
    return typeof goal === 'string' ? goal : goal.utterance;
}"""
_OPTIONS = "element => [...element.options ?? []].map(option => option.label)"
_REWARD = "() => WOB_DONE_GLOBAL ? WOB_RAW_REWARD_GLOBAL : null"


class MiniWobPage:
    """A page of MiniWoB++."""

    def __init__(self, task: str, seed: int) -> None:
        """Makes a page that is not open yet; equal seeds give equal pages."""
        self._task, self._seed = task, seed
        self._page: Page | None = None

    async def open(self) -> str:
        """Opens the page and returns its goal."""
        browser = await browser_of_this_loop()
        context = await browser.new_context(viewport=_VIEWPORT, offline=True)  # pyright: ignore[reportArgumentType]
        self._page = await context.new_page()
        self._page.set_default_timeout(1e3 * _ACTION_TIMEOUT_S)
        await self._page.goto((pages_folder() / f"{self._task}.html").as_uri())
        return str(await self._page.evaluate(_BEGIN, self._seed))

    async def tree(self) -> str:
        """Returns the accessibility tree."""
        return await self._live_page.aria_snapshot(mode="ai")

    async def click(self, ref: str) -> None:
        """Clicks an element."""
        await _try_action((await self._find_element(ref)).click)

    async def fill(self, ref: str, text: str) -> None:
        """Replaces the text of a field."""
        element = await self._find_element(ref)
        await _try_action(lambda: element.fill(text))

    async def select(self, ref: str, option: str) -> None:
        """Chooses an option of a list."""
        element = await self._find_element(ref)
        options = await _try_action(lambda: element.evaluate(_OPTIONS))
        if option not in options:  # otherwise the browser waits for it
            raise ActionRefusedError(f"the element has no such option; its options are {options}")
        await _try_action(lambda: element.select_option(label=option))

    async def press(self, key: str) -> None:
        """Presses a key."""
        await _try_action(lambda: self._live_page.keyboard.press(key))

    async def answer(self, text: str) -> None:
        """Does nothing: no page asks for words."""

    async def reward(self) -> float | None:
        """Returns the page's reward without its discount by time; None while the task is open."""
        return await self._live_page.evaluate(_REWARD)

    async def close(self) -> None:
        """Closes the page and its context."""
        if self._page is not None:
            await self._page.context.close()

    async def _find_element(self, ref: str) -> Locator:
        """Returns an element that can be used at once."""
        element = self._live_page.locator(f"aria-ref={ref}")
        if not re.fullmatch(r"\w+", ref) or await _try_action(element.count) != 1:
            raise ActionRefusedError(f"no element has the ref {ref!r}; the last tree has all refs")
        if not (await element.is_visible() and await element.is_enabled()):
            raise ActionRefusedError("the element is hidden or disabled")
        return element

    @property
    def _live_page(self) -> Page:
        if self._page is None:
            raise EnvError("the page is not open, got a call before start; call open first")
        return self._page


def pages_folder() -> Path:
    """Returns the folder of the pages in the installed package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    spec = importlib.util.find_spec("miniwob")  # not imported: only its pages are used
    if spec is None or spec.origin is None:
        raise MissingDependencyError("the pages of miniwob are not installed; pip install 'verl-agentic[miniwob]'")
    return Path(spec.origin).parent / "html" / "miniwob"


def make_env(row: EnvRow) -> WebEnv:
    """Returns the environment of one episode.

    Raises:
        DataError: the row names no page.
        MissingDependencyError: the extra `miniwob` is not installed.
    """
    task, seed = row.extra.get("task"), row.extra.get("seed")
    if not isinstance(task, str) or not isinstance(seed, int):
        raise DataError(f"a row of miniwob needs task and seed in extra_info, got {dict(row.extra)!r}; use make_rows")
    if not (pages_folder() / f"{task}.html").is_file():
        raise DataError(f"MiniWoB++ has no page {task!r}; `verl-agentic env list miniwob` lists the tasks")
    return WebEnv(row, MiniWobPage(task, seed))


async def _try_action(act: Callable[[], Awaitable[T]]) -> T:
    """Returns what an action returns; what the page refuses is the policy's error."""
    from playwright.async_api import Error, TimeoutError

    try:
        return await act()
    except TimeoutError as cause:
        raise ActionRefusedError(f"the element could not be used within {_ACTION_TIMEOUT_S:g} s") from cause
    except Error as cause:
        if "closed" in cause.message:  # the browser or the page is gone
            raise
        raise ActionRefusedError(cause.message.splitlines()[0]) from cause
