"""Tools of a verl script, as they are, in an environment."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, Reward, StopReason, ToolCall
from verl_agentic.verl.extensions.preflight.compose import compose
from verl_agentic.verl.extensions.verl_tools import VerlToolsEnv, make_env
from verl_agentic.verl.sections import AGENTIC

FUNCTIONS = '''
from verl.tools.function_tool import function_tool

@function_tool
def multiply(a: int, b: int) -> tuple:
    """Multiplies two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return str(a * b), 0.25
'''
CLASSES = """
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

ALIVE = []

class Notes(BaseTool):
    async def create(self, instance_id=None, create_kwargs=None, **kwargs):
        ALIVE.append(create_kwargs["text"])
        return "one", ToolResponse()

    async def execute(self, instance_id, parameters, **kwargs):
        if parameters.get("fail"):
            raise ValueError("no such note")
        return ToolResponse(text=f"{ALIVE[-1]} {self.config['tail']}"), 0.5, {}

    async def release(self, instance_id, **kwargs):
        ALIVE.pop()
"""
CONFIG = """
tools:
  - class_name: {module}.Notes
    config: {{type: native, tail: end}}
    tool_schema:
      type: function
      function: {{name: notes, description: Reads notes., parameters: {{type: object, properties: {{}}, required: []}}}}
"""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    module = f"notes_{tmp_path.name}"
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(CLASSES))
    (tmp_path / "tools.yaml").write_text(CONFIG.format(module=module))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("verl.tools.function_tool.FUNCTION_TOOL_REGISTRY", {})
    return {"function_tool_path": str(tmp_path / "functions.py"), "tool_config_path": str(tmp_path / "tools.yaml")}


def make_row(data_source: str = "openai/gsm8k") -> EnvRow:
    extra = {"tools_kwargs": {"notes": {"create_kwargs": {"text": "a note"}}}}
    return EnvRow(prompt=(Message("user", "6 x 7?"),), ground_truth="42", data_source=data_source, extra=extra)


async def act(env: VerlToolsEnv, name: str, **arguments: Any) -> Message:
    call = ToolCall(name=name, arguments=arguments, call_id="0")
    return (await env.step(Action(turn=0, text="", content="", tool_calls=(call,)))).messages[0]


async def score(env: VerlToolsEnv, text: str, stop: StopReason = StopReason.ANSWERED) -> Reward:
    action = Action(turn=1, text=text, content=text, tool_calls=())
    return await env.score(Transcript(messages=(), actions=(action,), stop_reason=stop))


def test_functions_and_classes_answer_as_they_are(paths: dict[str, Any]) -> None:
    async def play() -> None:
        env = make_env(make_row(), **paths)
        assert sorted(tool.name for tool in env.tools) == ["multiply", "notes"]
        assert (await act(env, "multiply", a=6, b=7)).content == "42"
        assert (await act(env, "notes")).content == "a note end"
        failed = await act(env, "notes", fail=True)
        assert failed.is_error and "no such note" in failed.content
        alive = __import__(type(env._tools["notes"]._tool).__module__).ALIVE  # pyright: ignore
        assert alive == []  # released after the failure as well
        reward = await score(env, "#### 42")
        assert reward.outcome == 1.0 and reward.info == {"tool_reward": 0.75}

    asyncio.run(play())


def test_only_a_complete_answer_is_scored(paths: dict[str, Any]) -> None:
    env = make_env(make_row(), **paths)
    assert asyncio.run(score(env, "#### 41")).outcome == 0.0
    assert asyncio.run(score(env, "#### 42", StopReason.MAX_TOKENS)).outcome == 0.0


def test_an_unknown_data_source_is_left_to_a_rubric(paths: dict[str, Any]) -> None:
    assert not asyncio.run(score(make_env(make_row("mine"), **paths), "42")).is_scored


def test_a_script_without_tools_is_told_which_keys_name_them() -> None:
    with pytest.raises(ConfigError, match="function_tool_path"):
        make_env(make_row())


def test_two_overrides_behind_those_of_a_script_choose_its_tools(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("defaults: [ppo_trainer, _self_]\n")
    tools = "actor_rollout_ref.rollout.multi_turn.function_tool_path=tools.py"
    overrides = [tools, "hydra.searchpath=[pkg://verl_agentic.config]", "+agentic=verl_tools"]
    config = compose(tmp_path, "script", overrides).config
    assert OmegaConf.select(config, AGENTIC).env_config == {"function_tool_path": "tools.py", "tool_config_path": None}
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "env_agent"
