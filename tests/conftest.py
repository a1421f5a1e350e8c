"""Fixtures of several folders of tests: one tiny model folder, the codec of its chat template, and a browser."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import omegaconf.base
import pytest

# A change is tested with the examples that the last one was; `HYPOTHESIS_PROFILE=default` looks for new and more ones.
hypothesis.settings.register_profile("same_examples", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same_examples"))

# Most of the time in which verl's configuration is composed and resolved goes into the same few hundred texts.
vars(omegaconf.base)["parse"] = functools.lru_cache(maxsize=4096)(vars(omegaconf.base)["parse"])


def pytest_collection_finish() -> None:
    """Gives torch one thread: processes that run tests side by side share the cores already."""
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model, tokenizer and chat template; for reading only."""
    from verl_agentic.data.tiny_model import make_tiny_model

    folder = tmp_path_factory.mktemp("tiny_model")
    make_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_chat(tiny_model: Path) -> tuple[Any, Any]:
    """Tokenizer and chat codec of the tiny model."""
    from verl_agentic.adapters.rollout.model_codec import load_codec

    return load_codec(str(tiny_model))


@pytest.fixture(scope="session")
def broken_runs() -> Any:
    """Returns the module that makes runs with a fault each."""
    path = Path(__file__).parent / "fixtures" / "broken_runs" / "make.py"
    spec = importlib.util.spec_from_file_location("broken_runs_make", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without windows. Its loop runs in this thread: a module that has it can have no loop of its own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {_BROWSERS} is on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
