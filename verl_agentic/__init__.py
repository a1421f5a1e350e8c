"""Reinforcement learning for LLM agents, as a plugin for an unmodified verl.

The public names are imported from here: `from verl_agentic import ToolEnv, tool`. Each is loaded at its first use, so
`import verl_agentic` imports neither torch nor verl. `verl_agentic.cpu.testing` has codecs for tests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in `_MODULES`, for editors and type checkers
    from verl_agentic.base.deadlines import in_thread as in_thread
    from verl_agentic.base.env import Env as Env
    from verl_agentic.base.env import EnvRow as EnvRow
    from verl_agentic.base.env import Transcript as Transcript
    from verl_agentic.base.errors import AgenticError as AgenticError
    from verl_agentic.base.errors import ConfigError as ConfigError
    from verl_agentic.base.errors import DataError as DataError
    from verl_agentic.base.errors import EnvError as EnvError
    from verl_agentic.base.finding import Finding as Finding
    from verl_agentic.base.tools.delegate import DelegateTool as DelegateTool
    from verl_agentic.base.tools.function_tool import tool as tool
    from verl_agentic.base.tools.tool_env import ToolEnv as ToolEnv
    from verl_agentic.base.types import UNSCORED as UNSCORED
    from verl_agentic.base.types import Action as Action
    from verl_agentic.base.types import Message as Message
    from verl_agentic.base.types import Observation as Observation
    from verl_agentic.base.types import Reward as Reward
    from verl_agentic.base.types import StopReason as StopReason
    from verl_agentic.base.types import Tool as Tool
    from verl_agentic.base.types import ToolCall as ToolCall
    from verl_agentic.base.types import ToolResult as ToolResult
    from verl_agentic.credit.advantage import advantage as advantage
    from verl_agentic.credit.credit.batch import Advantages as Advantages
    from verl_agentic.credit.credit.batch import CreditBatch as CreditBatch
    from verl_agentic.credit.policy_loss import Loss as Loss
    from verl_agentic.credit.policy_loss import LossBatch as LossBatch
    from verl_agentic.credit.policy_loss import policy_loss as policy_loss
    from verl_agentic.data.datasets.sft import write_sft as write_sft
    from verl_agentic.episode.attempt.attempt import EpisodeSetup as EpisodeSetup
    from verl_agentic.episode.attempt.episode_setup import EpisodeLimits as EpisodeLimits
    from verl_agentic.episode.collect import run_episodes as run_episodes
    from verl_agentic.episode.collect import scripted as scripted
    from verl_agentic.episode.env_package import EnvPackage as EnvPackage
    from verl_agentic.episode.env_package import load_env as load_env
    from verl_agentic.episode.env_package import load_env_package as load_env_package
    from verl_agentic.episode.records.episode import Episode as Episode
    from verl_agentic.episode.run_episode import run_episode as run_episode
    from verl_agentic.log.files.rows import read_rows as read_rows
    from verl_agentic.log.files.rows import write_rows as write_rows
    from verl_agentic.observe import load as _load
    from verl_agentic.observe.diagnosis.history import History as History
    from verl_agentic.observe.health.alarm import alarm as alarm
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
    from verl_agentic.tools.mcp_tools import McpTools as McpTools

    load_run = _load

_MODULES = {
    "episode.attempt.attempt": ("EpisodeSetup",),
    "episode.collect": ("run_episodes", "scripted"),
    "episode.attempt.episode_setup": ("EpisodeLimits",),
    "episode.records.episode": ("Episode",),
    "episode.run_episode": ("run_episode",),
    "credit.advantage": ("advantage",),
    "credit.credit.batch": ("Advantages", "CreditBatch"),
    "credit.policy_loss": ("Loss", "LossBatch", "policy_loss"),
    "data.datasets.sft": ("write_sft",),
    "log.files.rows": ("read_rows", "write_rows"),
    "base.deadlines": ("in_thread",),
    "observe.health.alarm": ("alarm",),
    "observe.diagnosis.history": ("History",),
    "base.env": ("Env", "EnvRow", "Transcript"),
    "base.tools.tool_env": ("ToolEnv",),
    "episode.env_package": ("EnvPackage", "load_env", "load_env_package"),
    "base.errors": ("AgenticError", "ConfigError", "DataError", "EnvError"),
    "base.finding": ("Finding",),
    "rewards.component": ("ABSTAIN", "Graded", "component"),
    "rewards.rubric": ("Rubric",),
    "rewards.sample": ("Sample",),
    "rewards.scorer": ("Scorer",),
    "sampling.curriculum": ("Pool", "curriculum"),
    "sampling.gate": ("KEEP", "Group", "Verdict", "gate"),
    "base.tools.delegate": ("DelegateTool",),
    "base.tools.function_tool": ("tool",),
    "tools.mcp_tools": ("McpTools",),
    "base.types": (
        *("UNSCORED", "Action", "Message", "Observation", "Reward", "StopReason", "Tool", "ToolCall", "ToolResult"),
    ),
}
"""Module -> its public names."""
_ADDRESSES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_ADDRESSES["load_run"] = ("observe", "load")


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
