"""A run that has not been started, as far as it can be known: plain data that checks judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MISSING = "???"
"""What hydra calls a value that must be given and was not."""
_DEFAULT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The files of a split."""

    count: int
    agent_names: Mapping[str | None, int]
    """Agent loop -> rows that name it; None: rows without a name. Empty where the files have no such column."""
    tasks: frozenset[str] = frozenset()
    """Digests of what the rows ask: prompt, ground truth and `extra_info`, without what numbers or names a row."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the model's files say of it."""

    max_tokens: int | None
    """Positions that it was made for, stretched ones included; None where its config does not say."""
    kv_bytes_per_token: int | None
    """Of the keys and values of a token in 16-bit numbers; None where the config does not say."""


@dataclass(frozen=True, kw_only=True)
class FirstPrompt:
    """What the policy sees first in the first row, rendered by the agent loop itself."""

    agent_loop: str
    text: str
    """Special tokens included."""
    num_tokens: int
    tools: Sequence[str]
    """Names of the tools that the loop has."""
    hidden_tools: Sequence[str]
    """Those of them that the prompt does not show."""
    messages: Sequence[Mapping[str, Any]]
    sampling: Mapping[str, Any]
    """What the loop asks the server for: stop tokens and texts included."""


@dataclass(frozen=True, kw_only=True)
class CallTrial:
    """A call as the chat template writes it, read back by the configured parser."""

    parser: str
    written: str
    """The turn with the call."""
    expected: str
    """The call."""
    read: str
    """What the parser made of it; empty where it saw no call."""

    @property
    def fits(self) -> bool:
        """True when the parser reads what the template writes."""
        return self.read == self.expected


@dataclass(frozen=True, kw_only=True)
class GoldTrial:
    """What a row's right answer earns, played within the budgets of the run."""

    row: int
    outcome: float | None
    """From 0 to 1; None where it could not be played or scored."""
    why: str
    """How it ended, or what failed."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Outcome components of a rubric -> share of their range."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A composed configuration, and what was found out about it."""

    config: Mapping[str, Any]
    """Resolved; what must be given and was not is `MISSING`."""
    defaults: Mapping[str, Any]
    """verl's own configuration, without the recipe."""
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Path of a section that verl makes an object of -> the names that the object has."""
    hints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Path of a section that names a class -> its fields with their annotations."""
    is_read: Callable[[str], bool] = lambda name: False
    """Whether verl's code or ours reads a key of this name anywhere."""
    chosen: Sequence[str] = ()
    """What the plugin has chosen, as `key=value (reason)`."""
    allowed: Sequence[str] = ()
    """Keys that the user vouches for, with everything below them."""
    registered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What there is by name: `agent_loop`, `tool_parser`, `estimator`, `group_estimator` (those of
    verl's that compare siblings), `policy_loss`, `trainer`, `reward_manager`, `logger`."""
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Where something was refused or failed while this was found out -> messages."""
    rows: Rows | None = None
    val_rows: Rows | None = None
    model: Model | None = None
    tools: Sequence[str] = ()
    """Names of the tools that verl's own `multi_turn` section configures."""
    prompt: FirstPrompt | None = None
    call: CallTrial | None = None
    gold: Sequence[GoldTrial] = ()
    metrics: frozenset[str] | None = None
    """Numbers that every sample's reward brings, by which groups can be filtered; None where that is not known."""

    def get(self, path: str, default: Any = None) -> Any:
        """Returns a value of the configuration; `default` where there is none, or it is null or missing."""
        return found if (found := _at(self.config, path)) not in (None, MISSING) else default

    def default(self, path: str) -> Any:
        """Returns what verl has there by itself."""
        return _at(self.defaults, path)

    def number(self, path: str, default: float = 0) -> Any:
        """Returns a number of the configuration, `default` where there is none."""
        found = self.get(path, default)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else default

    @property
    def trainer_mode(self) -> str:
        """verl's name of the trainer, which ours are known by, too."""
        return str(self.get("trainer.v1.trainer_mode", "sync")).removeprefix("agentic_")

    @property
    def agent_loop(self) -> str:
        """The agent loop of the first row."""
        return self.prompt.agent_loop if self.prompt else self.get(_DEFAULT_LOOP, "single_turn_agent")

    @property
    def agent_loops(self) -> set[str]:
        """The agent loops of all rows."""
        named = {name for name in self.rows.agent_names if name is not None} if self.rows else set()
        return named or {self.get(_DEFAULT_LOOP, "single_turn_agent")}

    @property
    def is_ours(self) -> bool:
        """Whether episodes are played by `env_agent`."""
        return self.agent_loops == {"env_agent"}

    @property
    def num_gpus(self) -> int:
        """GPUs, or CPU ranks, of the trainer."""
        return int(self.number("trainer.n_gpus_per_node", 1) * self.number("trainer.nnodes", 1))

    @property
    def parameter_sync_step(self) -> int:
        """Local updates between two pushes of the weights."""
        mode = self.trainer_mode
        return int(self.number(f"trainer.v1.{mode}.parameter_sync_step", 1))


def _at(tree: Mapping[str, Any], path: str) -> Any:
    for key in path.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return tree
