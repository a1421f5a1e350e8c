"""Facts about a run before it starts: plain data for the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MISSING = "???"
"""Hydra's mark of a required value that is not set."""
_DEFAULT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The files of a split."""

    count: int
    agent_names: Mapping[str | None, int]
    """Agent loop -> rows that name it; None: rows without a name. Empty where the files have no such column."""


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """Training rows that are validation rows, too."""

    exact: int
    """Rows with the same prompt, ground truth and hidden fields in normal form."""
    near: int
    """Rows of which 80 % are the same."""
    compared: int
    """Training rows that were read before the deadline."""
    example: str = ""
    """The places of a row in both files."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Facts from the model's files."""

    max_tokens: int | None
    """Number of positions, scaling included; None if its config does not have it."""
    kv_bytes_per_token: int | None
    """Size of the keys and values of a token in 16-bit numbers; None if the config does not have it."""
    tied_parameters: int | None = None
    """Number of all parameters if the head shares the embedding's weights, which count twice, as they are sent; None
    if it does not, or if it is unknown."""
    has_experts: bool = False
    quantisation: str = ""
    """Method of the quantisation of its weights."""


@dataclass(frozen=True, kw_only=True)
class FirstPrompt:
    """The first prompt of the first row, rendered by the agent loop."""

    agent_loop: str
    text: str
    """Special tokens included."""
    num_tokens: int
    tools: Sequence[str]
    """Names of the loop's tools."""
    hidden_tools: Sequence[str]
    """Tools that the prompt does not show."""
    messages: Sequence[Mapping[str, Any]]
    sampling: Mapping[str, Any]
    """Sampling parameters of the loop, stop tokens and texts included."""
    refused_messages: Sequence[str] | None = None
    """Messages after a turn that cannot be rendered, each with the reason; None if none were tried."""
    served_tools: Mapping[str, str] = field(default_factory=dict)
    """Server -> where its prompt begins to differ, because it passes the tools on in another form."""


@dataclass(frozen=True, kw_only=True)
class CallTrial:
    """A call that the chat template wrote and the configured parser parsed."""

    parser: str
    written: str
    """The turn with the call."""
    expected: str
    """The call."""
    read: str
    """The parsed call; empty if the parser found none."""

    @property
    def fits(self) -> bool:
        """The parser can parse the template's call."""
        return self.read == self.expected


@dataclass(frozen=True, kw_only=True)
class GoldTrial:
    """The score of a row's solution within the budgets of the run."""

    row: int
    outcome: float | None
    """From 0 to 1; None if it could not run or be scored."""
    why: str
    """Its stop reason, or the failure."""
    is_fault: bool = False
    """Whether the failure would also occur in the run: an exception that does not depend on this machine."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Outcome components of a rubric -> whether they say that the task is solved, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class FunctionTrial:
    """Calls of the run's reward function, on the first row."""

    name: str
    scores: Mapping[str, float] = field(default_factory=dict)
    """Response -> score; the empty response is the first."""
    metrics: frozenset[str] = frozenset()
    """Numbers that come with a score."""
    fault: str = ""
    """The failure of a call, which would also occur in the run."""
    untested: str = ""
    """The reason why it could not be called here."""


def is_supervised(config: Mapping[str, Any]) -> bool:
    """Returns whether a configuration is that of verl's SFT trainer, which has no actor."""
    return "engine" in config and "actor_rollout_ref" not in config


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A composed configuration, and facts about it."""

    config: Mapping[str, Any]
    """Resolved; required values that are not set are `MISSING`."""
    defaults: Mapping[str, Any]
    """verl's own configuration, without the recipe."""
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Path of a section with a class in verl -> names of the class."""
    hints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Path of a section with a dataclass -> its fields with their annotations."""
    is_read: Callable[[str], bool] = lambda name: False
    """Returns whether verl's code or ours reads a key of this name anywhere."""
    chosen: Sequence[str] = ()
    """Choices of the plugin, as `key=value (reason)`."""
    allowed: Sequence[str] = ()
    """Keys that the user allows, with everything below them."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Rollout engines that are installed here, with their versions."""
    registered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Registered names by kind: `agent_loop`, `tool_parser`, `estimator`, `group_estimator` (those of
    verl's that compare siblings), `policy_loss`, `trainer`, `reward_manager`, `logger`."""
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Source of a failure during the collection of facts -> messages."""
    rows: Rows | None = None
    val_rows: Rows | None = None
    shared_rows: SharedRows | None = None
    model: Model | None = None
    tools: Sequence[str] = ()
    """Names of the tools that verl's own `multi_turn` section configures."""
    prompt: FirstPrompt | None = None
    call: CallTrial | None = None
    gold: Sequence[GoldTrial] = ()
    function: FunctionTrial | None = None
    has_bfloat16_here: bool = False
    """Whether the CPU of this machine has instructions for bfloat16."""
    num_gpus_here: int | None = None
    """GPUs of this machine; None if unknown."""
    num_partial_solutions: int | None = None
    """Training rows with a partial solution; None if they were not counted."""
    metrics: frozenset[str] | None = None
    """Numbers of every sample's reward, by which groups can be filtered; None if unknown."""

    @property
    def is_supervised(self) -> bool:
        """Returns whether verl's SFT trainer runs it."""
        return is_supervised(self.config)

    def get(self, path: str, default: Any = None) -> Any:
        """Returns a value of the configuration; `default` if it is not set or null."""
        return value if (value := _get_value(self.config, path)) not in (None, MISSING) else default

    def default(self, path: str) -> Any:
        """Returns verl's default of a key."""
        return _get_value(self.defaults, path)

    def number(self, path: str, default: float = 0) -> Any:
        """Returns a number of the configuration; `default` if it is not set."""
        value = self.get(path, default)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else default

    @property
    def trainer_mode(self) -> str:
        """verl's name of the trainer mode; for a trainer of ours, that of its base."""
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
        """Returns whether `env_agent` runs the episodes."""
        return self.agent_loops == {"env_agent"}

    @property
    def num_gpus(self) -> int:
        """GPUs, or CPU ranks, of the trainer."""
        return int(self.number("trainer.n_gpus_per_node", 1) * self.number("trainer.nnodes", 1))

    @property
    def total_steps(self) -> int | None:
        """Training steps; None if their number is unknown."""
        if steps := self.number("trainer.total_training_steps"):
            return int(steps)
        prompts = int(self.number("data.train_batch_size"))
        if self.rows is None or prompts < 1:
            return None
        return int(self.num_train_rows // prompts * self.number("trainer.total_epochs", 1))

    @property
    def num_train_rows(self) -> int:
        """Rows of an epoch; 0 if they are unknown."""
        count, limit = 0 if self.rows is None else self.rows.count, int(self.number("data.train_max_samples", -1))
        return min(count, limit) if limit > 0 else count

    @property
    def parameter_sync_step(self) -> int:
        """Local updates between two transfers of the weights."""
        mode = self.trainer_mode
        return int(self.number(f"trainer.v1.{mode}.parameter_sync_step", 1))


def _get_value(tree: Mapping[str, Any], path: str) -> Any:
    for key in path.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return tree
