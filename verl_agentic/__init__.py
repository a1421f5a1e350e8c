"""Reinforcement learning for LLM agents, as a plugin for an unmodified verl.

The public names are imported from here: `from verl_agentic import ToolEnv, tool`. Each is loaded at its first use, so
`import verl_agentic` imports neither torch nor verl. `verl_agentic.testing` has codecs for tests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in `_MODULES`, for editors and type checkers
    from verl_agentic.agent_loops.attempt.attempt import EpisodeSetup as EpisodeSetup
    from verl_agentic.agent_loops.collect import run_episodes as run_episodes
    from verl_agentic.agent_loops.collect import scripted as scripted
    from verl_agentic.agent_loops.limits import EpisodeLimits as EpisodeLimits
    from verl_agentic.agent_loops.records.episode import Episode as Episode
    from verl_agentic.agent_loops.run_episode import run_episode as run_episode
    from verl_agentic.algorithms.advantage import advantage as advantage
    from verl_agentic.algorithms.credit.batch import Advantages as Advantages
    from verl_agentic.algorithms.credit.batch import CreditBatch as CreditBatch
    from verl_agentic.algorithms.policy_loss import Loss as Loss
    from verl_agentic.algorithms.policy_loss import LossBatch as LossBatch
    from verl_agentic.algorithms.policy_loss import policy_loss as policy_loss
    from verl_agentic.data.datasets.sft import write_sft as write_sft
    from verl_agentic.data.rows import read_rows as read_rows
    from verl_agentic.data.rows import write_rows as write_rows
    from verl_agentic.deadlines import in_thread as in_thread
    from verl_agentic.diagnostics import load as _load
    from verl_agentic.diagnostics.health.alarm import alarm as alarm
    from verl_agentic.diagnostics.history import History as History
    from verl_agentic.env import Env as Env
    from verl_agentic.env import EnvRow as EnvRow
    from verl_agentic.env import ToolEnv as ToolEnv
    from verl_agentic.env import Transcript as Transcript
    from verl_agentic.env_package import EnvPackage as EnvPackage
    from verl_agentic.env_package import load_env as load_env
    from verl_agentic.env_package import load_env_package as load_env_package
    from verl_agentic.errors import AgenticError as AgenticError
    from verl_agentic.errors import ConfigError as ConfigError
    from verl_agentic.errors import DataError as DataError
    from verl_agentic.errors import EnvError as EnvError
    from verl_agentic.finding import Finding as Finding
    from verl_agentic.rewards.component import ABSTAIN as ABSTAIN
    from verl_agentic.rewards.component import Graded as Graded
    from verl_agentic.rewards.component import component as component
    from verl_agentic.rewards.rubric import Rubric as Rubric
    from verl_agentic.rewards.sample import Sample as Sample
    from verl_agentic.rewards.scorer import Scorer as Scorer
    from verl_agentic.sampling.curriculum import Pool as Pool
    from verl_agentic.sampling.curriculum import curriculum as curriculum
    from verl_agentic.sampling.gate import KEEP as KEEP
    from verl_agentic.sampling.gate import Group as Group
    from verl_agentic.sampling.gate import Verdict as Verdict
    from verl_agentic.sampling.gate import gate as gate
    from verl_agentic.tools.delegate import DelegateTool as DelegateTool
    from verl_agentic.tools.function_tool import tool as tool
    from verl_agentic.tools.mcp_tools import McpTools as McpTools
    from verl_agentic.tools.tool import Tool as Tool
    from verl_agentic.tools.tool import ToolResult as ToolResult
    from verl_agentic.types import UNSCORED as UNSCORED
    from verl_agentic.types import Action as Action
    from verl_agentic.types import Message as Message
    from verl_agentic.types import Observation as Observation
    from verl_agentic.types import Reward as Reward
    from verl_agentic.types import StopReason as StopReason
    from verl_agentic.types import ToolCall as ToolCall

    load_run = _load

_MODULES = {
    "agent_loops.attempt.attempt": ("EpisodeSetup",),
    "agent_loops.collect": ("run_episodes", "scripted"),
    "agent_loops.limits": ("EpisodeLimits",),
    "agent_loops.records.episode": ("Episode",),
    "agent_loops.run_episode": ("run_episode",),
    "algorithms.advantage": ("advantage",),
    "algorithms.credit.batch": ("Advantages", "CreditBatch"),
    "algorithms.policy_loss": ("Loss", "LossBatch", "policy_loss"),
    "data.datasets.sft": ("write_sft",),
    "data.rows": ("read_rows", "write_rows"),
    "deadlines": ("in_thread",),
    "diagnostics.health.alarm": ("alarm",),
    "diagnostics.history": ("History",),
    "env": ("Env", "EnvRow", "ToolEnv", "Transcript"),
    "env_package": ("EnvPackage", "load_env", "load_env_package"),
    "errors": ("AgenticError", "ConfigError", "DataError", "EnvError"),
    "finding": ("Finding",),
    "rewards.component": ("ABSTAIN", "Graded", "component"),
    "rewards.rubric": ("Rubric",),
    "rewards.sample": ("Sample",),
    "rewards.scorer": ("Scorer",),
    "sampling.curriculum": ("Pool", "curriculum"),
    "sampling.gate": ("KEEP", "Group", "Verdict", "gate"),
    "tools.delegate": ("DelegateTool",),
    "tools.function_tool": ("tool",),
    "tools.mcp_tools": ("McpTools",),
    "tools.tool": ("Tool", "ToolResult"),
    "types": ("UNSCORED", "Action", "Message", "Observation", "Reward", "StopReason", "ToolCall"),
}
"""Module -> its public names."""
_ADDRESSES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_ADDRESSES["load_run"] = ("diagnostics", "load")


def __getattr__(name: str) -> Any:
    """Returns a public name; imports its module at the first use."""
    if name not in _ADDRESSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ADDRESSES[name]
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    """Returns the public names and the module's own attributes."""
    return sorted({*globals(), *_ADDRESSES})
