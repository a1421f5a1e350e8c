"""Stored runs, and pages that are served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stored_runs import stored_run

from verl_agentic.observe.viewer.run_view import RunView
from verl_agentic.observe.viewer.viewer_server import PageServer


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A run of 5 steps with 4 groups of 4; for reading only."""
    return stored_run(tmp_path_factory.mktemp("run"), tiny_model)


@pytest.fixture(scope="session")
def view(run_dir: Path) -> RunView:
    """Returns the page's view of that run; for reading only."""
    return RunView(run_dir)


@contextmanager
def served(*views: RunView, host: str = "127.0.0.1") -> Iterator[PageServer]:
    """Serves a page."""
    with PageServer(*views, host=host, port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def serve() -> Any:
    """Serves views while a block runs: `with serve(view) as server`."""
    return served


@pytest.fixture(scope="session")
def url(view: RunView) -> Iterator[str]:
    """Yields the address at which the run of 5 steps is served."""
    with served(view) as server:
        yield server.url


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address and waits until it shows data; fails when the page has reported an error."""
    contexts, errors = [], []

    def open_(url: str, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1300, "height": 850}, **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(url)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not errors
