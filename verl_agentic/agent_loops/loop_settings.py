"""What a user configures about episodes, with the values that change from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from verl_agentic.agent_loops.attempt.compaction import Compaction
from verl_agentic.agent_loops.attempt.exploration import Exploration
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.protocols.factory import CodecOptions
from verl_agentic.errors import ConfigError
from verl_agentic.sampling.branching_rule import Branching
from verl_agentic.sampling.step_schedules import Constant, Schedule, to_schedule
from verl_agentic.settings import check_keys, check_value
from verl_agentic.trajectory_log.log_options import LogOptions

_KEYS = {
    *("env", "env_config", "limits", "compaction", "exploration", "max_turns_schedule", "temperature_schedule"),
    *("protocol", "protocol_options", "guidance", "branching", "max_void_share", "required", "external_sessions"),
    *("log", "audit", "health", "waiting"),
}
GREEDY_SESSION = "agentic_greedy_session"
"""Column of a prompt: which of its sessions is played greedily, as a baseline that is never trained on."""
Audit = Literal["stop", "warn", "off"]
_EXPLORATION = {"epsilon_tool", "partial_solution"}
_PLAIN = {"env": str, "env_config": Mapping, "protocol": str, "guidance": bool, "max_void_share": float}


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The section `rollout.custom.agentic`."""

    env: str | None
    """Id of the environment; a row's `extra_info.env` goes first."""
    env_config: Mapping[str, Any]
    """Options of the environment."""
    limits: EpisodeLimits
    compaction: Compaction | None = None
    protocol: str = "chat"
    """How actions are written: `chat`, the name of a bundled protocol, or the path of one."""
    codec_options: CodecOptions = field(default_factory=CodecOptions)
    guidance: bool = False
    """Failed episodes are played again with what the environment says about the failure."""
    branching: Branching | None = None
    """How the training rollouts of a prompt branch from each other; None: they do not."""
    external_sessions: int = 0
    """How many sessions of every training prompt the environment's solution plays, for the loss `rl_plus`."""
    max_turns: Schedule | None = None
    temperature: Schedule | None = None
    exploration: Mapping[str, Schedule] = field(default_factory=dict)
    log: LogOptions = field(default_factory=LogOptions)
    """Where every episode is stored, for `verl-agentic view`, `diagnose` and `reward`."""
    audit: Audit = "stop"
    """What happens when a row's tokens, mask and text do not fit together: `stop` the run, `warn`, or `off`."""

    @classmethod
    def from_mapping(cls, values: Any, *, section: str, **limits: Any) -> LoopSettings:
        """Returns the settings of a config section; `limits` fill what its limits leave out.

        Raises:
            ConfigError: an unknown key, or a value out of range; the message names the section.
        """
        values = {key: value for key, value in check_keys(values, _KEYS, section=section).items() if value is not None}
        for key, kind in _PLAIN.items():
            if key in values:
                check_value(values[key], kind, name=f"{section}.{key}")
        exploration = check_keys(values.get("exploration"), _EXPLORATION, section=f"{section}.exploration")
        settings = cls(
            env=values.get("env"),
            env_config=values.get("env_config", {}),
            limits=EpisodeLimits.from_mapping(values.get("limits"), section=f"{section}.limits", **limits),
            compaction=Compaction.from_mapping(values["compaction"], section=f"{section}.compaction")
            if "compaction" in values
            else None,
            protocol=values.get("protocol", "chat"),
            codec_options=CodecOptions.from_mapping(
                values.get("protocol_options"), section=f"{section}.protocol_options"
            ),
            guidance=values.get("guidance", False),
            branching=Branching.from_mapping(values["branching"], section=f"{section}.branching")
            if "branching" in values
            else None,
            external_sessions=to_count(values, "external_sessions", section=section),
            max_turns=_schedule(values, "max_turns_schedule", section),
            temperature=_schedule(values, "temperature_schedule", section),
            exploration={k: to_schedule(v, name=f"{section}.exploration.{k}") for k, v in exploration.items()},
            log=LogOptions.from_mapping(values.get("log"), section=f"{section}.log"),
            audit=to_audit(values.get("audit"), section=section),
        )
        settings.exploration_at(1, seed=0)
        if settings.guidance and settings.branching is not None:
            raise ConfigError(
                f"{section}.guidance changes the prompt of single rollouts, which those that branch share; choose one"
            )
        if settings.max_turns is not None and settings.max_turns.least < 1:
            raise ConfigError(f"{section}.max_turns_schedule must never be below 1, got {settings.max_turns}; raise it")
        if settings.temperature is not None and settings.temperature.least <= 0:
            raise ConfigError(
                f"{section}.temperature_schedule must stay above 0, where samples of a prompt differ, got "
                f"{settings.temperature}; raise it"
            )
        return settings

    def limits_at(self, step: int) -> EpisodeLimits:
        """Returns the limits of an episode of training step `step` (from 1)."""
        return self.limits if self.max_turns is None else replace(self.limits, max_turns=int(self.max_turns.at(step)))

    def exploration_at(self, step: int, *, seed: int | str) -> Exploration:
        """Returns what is forced in an episode of training step `step`; `seed` differs between episodes."""
        return Exploration(seed=seed, **{name: schedule.at(step) for name, schedule in self.exploration.items()})


def to_count(values: Mapping[str, Any], key: str, *, section: str) -> int:
    """Returns a number of a section that counts something; 0 where it is not set.

    Raises:
        ConfigError: it is none.
    """
    count = values.get(key, 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigError(f"{section}.{key} must be an integer of at least 0, got {count!r}")
    return count


def to_audit(value: Any, *, section: str) -> Audit:
    """Returns what a section says of the audit; `stop` where it says nothing.

    Raises:
        ConfigError: none of the three.
    """
    value = "off" if value is False else value  # what YAML makes of off
    if value is not None and value not in get_args(Audit):
        raise ConfigError(f"{section}.audit must be one of {get_args(Audit)}, got {value!r}")
    return value or "stop"


def _schedule(values: Mapping[str, Any], key: str, section: str) -> Schedule | None:
    if values.get(key) is None:
        return None
    schedule = to_schedule(values[key], name=f"{section}.{key}")
    if isinstance(schedule, Constant):
        raise ConfigError(f"{section}.{key} must be {{stages, every}} or {{start, end, steps}}, got {values[key]!r}")
    return schedule
