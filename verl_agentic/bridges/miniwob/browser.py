"""One Chromium per event loop, closed when the loop ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import EnvError

if TYPE_CHECKING:
    from playwright.async_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Browser, AsyncGenerator[Browser, None]]] = WeakKeyDictionary()
_opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def browser_of_this_loop() -> Browser:
    """Returns the browser of the running event loop; a new one if the last one ended.

    Raises:
        MissingDependencyError: playwright is not installed.
        EnvError: no browser starts.
    """
    loop = asyncio.get_running_loop()
    async with _opening.setdefault(loop, asyncio.Lock()):
        if loop not in _open or not _open[loop][0].is_connected():
            running = _run_browser()
            _open[loop] = (await anext(running), running)
    return _open[loop][0]


async def _run_browser() -> AsyncGenerator[Browser, None]:
    # At its end, a loop closes its asynchronous generators (`shutdown_asyncgens`, as in `asyncio.run`).
    with needs_extra("miniwob", what="a browser"):
        from playwright.async_api import Error, async_playwright
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    args = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own sandbox refuses root
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(executable_path=path, args=args)
        except Error as cause:
            raise EnvError(
                f"no Chromium starts, got {path or 'none on the path'}: {cause}; run apt install chromium, or "
                "playwright install chromium"
            ) from cause
        try:
            yield browser
        finally:
            await browser.close()
