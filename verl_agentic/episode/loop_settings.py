"""User settings of episodes, and values that change from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, check_keys, check_value, read_settings, setting
from verl_agentic.episode.attempt.call_choice import check_constraint
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits, Exploration
from verl_agentic.episode.protocols.factory import CodecOptions
from verl_agentic.log.log_options import LogOptions
from verl_agentic.sampling.step_schedules import Constant, Schedule, to_changing_schedule, to_schedule

GREEDY_SESSION = "agentic_greedy_session"
"""Column of a prompt: its greedy session, a baseline that is never trained."""
INSTRUCTION = "agentic_instruction"
"""Column of a prompt: the instruction that its rollouts get."""
NOT_SHARED = -1
"""Id of a token that no sibling shares, in the column of rollouts that branch."""
Audit = Literal["stop", "warn", "off"]


def to_audit(value: Any, *, name: str) -> Audit:
    """Reads the audit setting; `stop` if it is not set. Raises ConfigError for an unknown value."""
    audit = "stop" if value is None else "off" if value is False else value  # YAML 1.1 reads a bare `off` as false
    check_value(audit, Audit, name=name)
    return audit


class ExplorationSchedules(Settings):
    """Text that the framework writes into the policy's turns, by training step."""

    epsilon_tool: Schedule = setting(Constant(0.0), read=to_schedule)
    """Probability that a turn begins with a call of a tool chosen at random. A number, `{stages, every}` or
    `{start, end, steps}`; 0 if not set."""
    partial_solution: Schedule = setting(Constant(0.0), read=to_schedule)
    """Share of the row's partial solution that the first turn begins with; written like `epsilon_tool`."""

    def check_together(self) -> None:
        self.at(1, seed=0)

    def at(self, step: int, *, seed: int | str) -> Exploration:
        """Returns the exploration of an episode of training step `step`; `seed` differs between episodes."""
        return Exploration(
            seed=seed, epsilon_tool=self.epsilon_tool.at(step), partial_solution=self.partial_solution.at(step)
        )


class Branching(Settings):
    """Settings for branching the rollouts of a prompt. The defaults are those of ARPO's published scripts and code."""

    initial: int = setting(8, min=1)
    """Number of rollouts of a prompt that start at once. The others wait for a place to branch from."""
    beam: int = setting(2, min=2)
    """Maximum number of rollouts that continue from one place, the original one included."""
    probability: float = setting(0.5, min=0, max=1)
    """Probability of branching where the entropy equals that of the first turn."""
    entropy_weight: float = 0.2
    """Increase of that probability per unit of entropy above the first turn's."""
    entropy_tokens: int = setting(20, min=1)
    """Number of first tokens of a turn whose entropy counts."""

    def check_rollout(self, *, group_size: int, has_log_probs: bool) -> None:
        """Raises ConfigError if nothing can branch: all rollouts start at once, or the policy gives no log-probs."""
        if self.initial >= group_size:
            raise ConfigError(
                f"branching.initial must be below rollout.n, or no sample is left to branch, got {self.initial} of "
                f"{group_size}; lower it, or raise rollout.n"
            )
        if not has_log_probs:
            raise ConfigError("branching needs sampled log-probs, got rollout.calculate_log_probs=False; set it")


class LoopSettings(Settings):
    """Settings of episodes."""

    env: str | None = None
    """Id of the environment. Null: each row names its own (`extra_info.env`). Rows of another one are refused."""
    env_config: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    limits: EpisodeLimits
    """Token budgets and deadlines of an episode. Default: each key has its own."""
    compaction: Compaction | None = None
    """Settings for shortening a conversation that is too long. None: it ends at its budget."""
    protocol: str = "chat"
    """Format of actions: `chat`, the name of a bundled protocol, the path of a YAML file, or the address of a
    `Protocol` (`module:name`, `path.py:name`)."""
    protocol_options: CodecOptions = field(default_factory=CodecOptions)
    """Options of the protocol."""
    constraint: str = ""
    """Linear temporal logic over the names of tools and `answer`, such as `!answer U search`. Calls and answers that it
    forbids are not executed. If only one tool is allowed, the turn begins with its call, untrained. Empty: any call."""
    constraint_masks: bool = False
    """Whether the engine itself may only choose among the calls that `constraint` allows, where it does not allow the
    answer. The turn then begins with the call, untrained. Needs vLLM or `rollout.name=agentic`."""
    guidance: bool = False
    """Retries failed episodes with the environment's hint about the failure."""
    branching: Branching | None = None
    """Rules by which the training rollouts of a prompt branch from each other. None: they do not."""
    external_sessions: int = setting(0, min=0)
    """Number of sessions per training prompt from the row's demonstration (`extra_info.demonstration`) or else from
    the environment's solution, for the loss `rl_plus`."""
    max_turns_schedule: Schedule | None = setting(None, read=to_changing_schedule)
    """`limits.max_turns` of every training step: `{stages, every}` or `{start, end, steps}`."""
    temperature_schedule: Schedule | None = setting(None, read=to_changing_schedule)
    """Sampling temperature of every training step: `{stages, every}` or `{start, end, steps}`."""
    exploration: ExplorationSchedules = field(default_factory=ExplorationSchedules)
    """Text that the framework writes into the policy's turns."""
    max_void_share: float = setting(0.5, above=0, max=1)
    """The run stops when a greater share of the last 256 episodes is void. 1 never stops it."""
    required: Any = None
    """Set by `agentic/plugin`: without the plugin the configuration does not resolve, and no run starts."""
    log: LogOptions = field(default_factory=LogOptions)
    """Log of every episode, for `verl-agentic view`, `diagnose` and `reward`."""
    audit: Audit = setting("stop", read=to_audit)
    """Action when a row's tokens, mask and text do not match: `stop` the run, `warn`, or `off`."""
    health: Any = None
    """Alarms on the metrics of the run, a section of its own."""
    waiting: Any = None
    """Warnings about episodes that wait for too long, a section of its own."""

    def check_together(self) -> None:
        if self.guidance and self.branching is not None:
            raise ConfigError(
                "guidance changes the prompt of single rollouts, and rollouts that branch share it, got both; unset one"
            )
        if self.constraint:
            check_constraint(self.constraint)
        elif self.constraint_masks:
            raise ConfigError("constraint_masks masks calls that a constraint forbids, got none; set constraint")
        turns, temperature = self.max_turns_schedule, self.temperature_schedule
        if turns is not None and turns.minimum < 1:
            raise ConfigError(f"max_turns_schedule must never be below 1, got {turns}; raise it")
        if temperature is not None and temperature.minimum <= 0:
            raise ConfigError(
                f"temperature_schedule must stay above 0, or the samples of a prompt are equal, got {temperature}; "
                "raise it"
            )

    def limits_at(self, step: int) -> EpisodeLimits:
        """Returns the limits of an episode of training step `step` (from 1)."""
        turns = self.max_turns_schedule
        return self.limits if turns is None else replace(self.limits, max_turns=int(turns.at(step)))


def read_loop_settings(values: Any, *, section: str, **limits: Any) -> LoopSettings:
    """Reads a section with default `limits`; ignores null keys. Raises ConfigError for unknown keys and bad values."""
    fields = LoopSettings.__dataclass_fields__
    entries = {k: value for k, value in check_keys(values, fields, section=section).items() if value is not None}
    read = read_settings(EpisodeLimits, entries.pop("limits", None), section=f"{section}.limits", **limits)
    return read_settings(LoopSettings, entries, section=section, limits=read)
