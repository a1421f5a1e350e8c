"""Fixtures of several folders of tests: one tiny model folder, the codec of its chat template, a browser, and a
Docker engine."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import omegaconf.base
import pytest

gc.disable()  # until the tests are collected: modules and tests are no garbage

# `make test` draws few examples and `make test-all` many, always the same ones. `make test-nightly` draws new ones.
_QUIET = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
for _name, _num_examples in {"few": 10, "many": 100, "new": 100}.items():
    hypothesis.settings.register_profile(
        _name,
        max_examples=_num_examples,
        derandomize=_name != "new",
        deadline=None,
        suppress_health_check=_QUIET,
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

# So many cases of a parametrised test run in `make test`, without a mark `sample`.
_MAX_CASES = 5

# Texts of tests are short: threads of the tokenizer cost more than they save.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# verl's configuration is composed in hundreds of tests, from the same few hundred texts.
vars(omegaconf.base)["parse"] = functools.lru_cache(maxsize=4096)(vars(omegaconf.base)["parse"])


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Marks the cases of a test as slow or nightly, all but those that `sample(count, slow=count)` leaves.

    `make test` has no use for them, so they are not even made: they are more than half of all tests.
    """
    yield
    cases = vars(metafunc)["_calls"]
    mark = metafunc.definition.get_closest_marker("sample")
    max_fast = mark.args[0] if mark else _MAX_CASES
    max_slow = mark.kwargs.get("slow", len(cases)) if mark else len(cases)
    names_by_case = {id(case): {mark.name for mark in case.marks} for case in cases}
    frequent = [case for case in cases if not names_by_case[id(case)] & {"nightly", "recipes"}]
    fast = _spread([case for case in frequent if "slow" not in names_by_case[id(case)]], max_fast)
    slow_ids = {id(case) for case in _spread(frequent, max_slow)}
    fast_ids = {id(case) for case in fast}
    for case in frequent:
        if id(case) not in fast_ids:
            case.marks.append(pytest.mark.slow if id(case) in slow_ids else pytest.mark.nightly)
    if str(metafunc.config.getoption("markexpr")).startswith("not slow and not nightly"):
        cases[:] = fast or cases[:1]


def _spread(cases: list[Any], count: int) -> list[Any]:
    """Returns `count` cases that are spread over the list, or all."""
    count = min(count, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]


@pytest.fixture(autouse=True)
def keep_environment() -> Iterator[None]:
    """Puts `os.environ` back, which datasets replaces by a copy (`findings/datasets_replaces_the_environment.sh`).

    What holds the old object, such as rich, would else see no variable that a later test sets.
    """
    environ = os.environ
    yield
    vars(os)["environ"] = environ


def pytest_collection_finish() -> None:
    """Keeps modules and tests out of garbage collections, and gives torch one thread if workers share the cores."""
    gc.freeze()
    gc.enable()
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model, tokenizer and chat template; for reading only."""
    from verl_agentic.cpu.tiny_model import make_tiny_model

    folder = tmp_path_factory.mktemp("tiny_model")
    make_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_chat(tiny_model: Path) -> tuple[Any, Any]:
    """Tokenizer and chat codec of the tiny model."""
    from verl_agentic.verl.rollout.model_codec import load_codec

    return load_codec(str(tiny_model))


@pytest.fixture(scope="session")
def real_tokenizer(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Returns the folder with tokenizer and chat template of a real model, or skips the test."""
    from real_tokenizers import NotHereError, save_real_tokenizer

    def save(name: str) -> Path:
        assert request.config.cache is not None
        try:
            return save_real_tokenizer(name, Path(request.config.cache.mkdir("real_tokenizers")))
        except NotHereError as reason:
            pytest.skip(str(reason))

    return save


@pytest.fixture(scope="session")
def broken_runs() -> Any:
    """Returns the module that makes runs with a fault each."""
    path = Path(__file__).parent / "tests" / "fixtures" / "broken_runs" / "make.py"
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


_DOCKER_IMAGE_SCRIPT = Path(__file__).parent / ".ci" / "docker_image.py"


def _no_engine(reason: str) -> None:
    if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") == "1":
        pytest.fail(f"VERL_AGENTIC_REQUIRE_DOCKER=1, but {reason}")
    pytest.skip(f"no Docker engine to test with: {reason}")


def _docker_sdk() -> Any:
    import docker

    return docker


@pytest.fixture(scope="session")
def docker_image() -> str:
    """The name of the image that the tests use."""
    return os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")


@pytest.fixture(scope="module")
def api(docker_image: str) -> Iterator[Any]:
    """The SDK's own connection to the engine, which has the image; skips without an engine, unless one is required."""
    docker = pytest.importorskip("docker") if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") != "1" else _docker_sdk()
    from verl_agentic.base.errors import SandboxUnavailableError
    from verl_agentic.sandbox.docker import docker_engine

    try:
        docker_engine.Engine(None).close()
    except SandboxUnavailableError as cause:
        _no_engine(str(cause))
    client = docker.APIClient(**docker.utils.kwargs_from_env(), version="auto")
    if not client.images(docker_image):
        rootfs = subprocess.run([sys.executable, _DOCKER_IMAGE_SCRIPT], capture_output=True, check=True).stdout
        name, _, tag = docker_image.partition(":")
        client.import_image_from_data(rootfs, name, tag or "latest")
    yield client
    client.close()
