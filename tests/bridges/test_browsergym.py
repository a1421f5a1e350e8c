"""BrowserGym by its contract: actions as its strings, its errors as observations, one thread for its API."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, MissingDependencyError
from verl_agentic.base.types import Action, StopReason, ToolCall
from verl_agentic.bridges.browsergym import make_env, make_rows


@pytest.fixture(scope="module", autouse=True)
def gymnasium() -> Any:
    return pytest.importorskip("gymnasium")


class FakeBrowser:
    """Has the calls and the observations of `browsergym.core.env.BrowserEnv` 0.14.3."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.threads: set[int] = set()
        self.closed = 0

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self.threads.add(threading.get_ident())
        return self._observe(), {}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.threads.add(threading.get_ident())
        self.actions.append(action)
        error = "ValueError: no element with bid 99\nat line 3" if "99" in action else ""
        done = action.startswith("send_msg_to_user")
        return self._observe(error), float(done), done, False, {}

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1

    def _observe(self, error: str = "") -> dict[str, Any]:
        goal = ({"type": "text", "text": "Who sells it?"}, {"type": "image_url", "image_url": "data:"})
        return {"goal_object": goal, "axtree_object": {}, "focused_element_bid": "12", "last_action_error": error}


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, gymnasium: Any) -> FakeBrowser:
    fake = FakeBrowser()
    for name in ("browsergym", "browsergym.webarena", "browsergym.utils", "browsergym.utils.obs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["browsergym.utils.obs"].flatten_axtree_to_str = lambda tree: "[12] button"  # type: ignore[attr-defined]
    monkeypatch.setattr(gymnasium, "make", lambda env_id, headless: fake)
    return fake


def row(env_id: str = "browsergym/webarena.310") -> EnvRow:
    return make_rows(split="train", count=1, seed=0, env_ids=[env_id])[0]


async def test_calls_become_actions_of_one_thread_and_errors_become_observations(browser: FakeBrowser) -> None:
    env = make_env(row())
    (prompt,) = await env.start()
    assert prompt.content == "Who sells it?\n\n[12] button"
    calls = [
        ToolCall("type", {"ref": "12", "text": "it's"}),
        ToolCall("select", {"ref": "12", "option": "b"}),
        ToolCall("press", {"key": "Enter"}),
        ToolCall("click", {"ref": "99"}),
    ]
    observed = await env.step(Action(turn=0, text="", content="", tool_calls=tuple(calls)))
    *fine, refused = observed.messages
    assert all(message.content == "[12] button" for message in fine)
    assert refused.is_error and "no element with bid 99" in refused.content and "line 3" not in refused.content
    last = await env.step(Action(turn=1, text="", content="Acme"))
    assert last.stop is not None
    reward = await env.score(Transcript(messages=(), actions=(), stop_reason=StopReason.ANSWERED))
    await env.close()
    assert (reward.outcome, browser.closed) == (1.0, 1)
    assert len(browser.threads) == 1 and threading.get_ident() not in browser.threads
    assert browser.actions == [
        """fill('12', "it's")""",
        "select_option('12', 'b')",
        "press('12', 'Enter')",
        "click('99')",
        "send_msg_to_user('Acme')",
    ]


async def test_a_missing_benchmark_names_its_package() -> None:
    env = make_env(row("browsergym/no_such.1"))
    with pytest.raises(MissingDependencyError, match="no_such"):
        await env.start()
    await env.close()


def test_rows_need_ids_and_splits_share_no_seed() -> None:
    with pytest.raises(ConfigError, match="env_ids"):
        make_rows(split="train", count=1, seed=0)
    options: dict[str, Any] = {"count": 4, "seed": 3, "env_ids": ["browsergym/a.1", "browsergym/a.2"]}
    train, test = make_rows(split="train", **options), make_rows(split="test", **options)
    assert not {row.extra["seed"] for row in train} & {row.extra["seed"] for row in test}
    with pytest.raises(DataError, match="env_id"):
        make_env(EnvRow(prompt=(), extra={}))
