"""The type and the registry of curricula. A curriculum is a function of a pool of prompts with a decorator:

@curriculum()
def uniform(pool: Pool, *, scale: float = 1.0) -> Floats:
    return np.full(len(pool), scale)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import BatchFunction, Registry
from verl_agentic.base.settings import Settings, setting
from verl_agentic.sampling.prompts.pass_rates import Floats, PassRates

Returned = Literal["weights", "order"]
_COLUMNS = ("difficulty", "source")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The input of a curriculum: N prompts."""

    rates: PassRates
    step: int = 1
    """Training step that the prompts are drawn for, from 1."""
    difficulty_N: Floats | None = None
    """A column of the data; greater is harder."""
    source_N: NDArray[np.str_] | None = None
    """A column of the data, such as `data_source`."""

    def __len__(self) -> int:
        return len(self.rates)


@dataclass(frozen=True, kw_only=True)
class CurriculumType(BatchFunction):
    what = "curriculum"
    returns: Returned
    revisits: bool
    """Whether a weight of 0 is an estimate that must be checked again from time to time."""

    def __call__(self, pool: Pool, **options: Any) -> NDArray[Any]:
        """Returns weights >= 0, or prompts in order. Raises ConfigError for an unknown option or a missing column."""
        self.check_options(options)
        if missing := self.missing_columns(pool, suffix="_N"):
            raise ConfigError(
                f"curriculum {self.name!r} needs {missing} of every prompt; write them into the data, and their place "
                f"into data.curriculum.{missing[0]}_key"
            )
        result = self.function(pool, **options)
        if self.returns == "weights":
            assert result.shape == (len(pool),) and (result >= 0).all(), self.name
        return result


def curriculum(
    *, needs: tuple[str, ...] = (), returns: Returned = "weights", revisits: bool = False
) -> Callable[[Callable[..., NDArray[Any]]], CurriculumType]:
    """Makes a curriculum of a function `(pool, *, options) -> [N] weights | order`.

    Args:
        needs: columns of `Pool` that the curriculum requires.
        returns: weights for draws with replacement, or an order in which every prompt comes once per epoch.
        revisits: whether prompts with a weight of 0 must be drawn again from time to time.
    """
    assert set(needs) <= set(_COLUMNS), needs

    def make(function: Callable[..., NDArray[Any]]) -> CurriculumType:
        return CurriculumType(
            name=function.__name__, function=function, returns=returns, needs=frozenset(needs), revisits=revisits
        )

    return make


_REGISTRY = Registry[CurriculumType](
    package="verl_agentic.sampling.curricula", what="curriculum", kind=CurriculumType, decorator="curriculum"
)
load_curriculum, curriculum_names = _REGISTRY.load, _REGISTRY.names


class GroupSizeSettings(Settings):
    """The section `agentic.curriculum.group_size`: prompts get groups of different sizes, `rollout.n` on average."""

    least: int = setting(min=2)
    """Minimum number of attempts of a prompt."""
    most: int = setting(min=2)
    """Maximum number of attempts of a prompt."""

    def check_together(self) -> None:
        if self.least > self.most:
            raise ConfigError(f"least must be at most `most`, got {self.least} and {self.most}; change one of them")


class TaskSetSettings(Settings):
    """The section `agentic.curriculum.task_set`: tasks that are proposed while training joins the data."""

    proposals: str
    """JSON lines file that proposers append rows to, with the columns of the data; need not exist yet."""
    check: str
    """`module:function` or `path.py:function` of a row; returns whether the task is valid. Exceptions count as
    False."""
    patience: int = setting(4, min=1)
    """Number of successive groups, all solved or all failed, after which a proposed task is removed."""
    value_bounds: Sequence[float] | None = None
    """`[low, high]`: a proposed task is removed when its running pass rate lies outside after a finished group (WebRL:
    `[0.05, 0.75]`). WebRL asks its critic for the value before it poses a task; the running rate is an estimate of that
    value. None: only `patience` removes tasks."""
    mutator: Mapping[str, Any] | None = None
    """Model that writes new tasks from failed ones into the file (WebRL): `{url, model, api_key_env, temperature,
    max_tokens, ...}`. They have no ground truth, so they need a reward that judges episodes, and another `check` than
    `is_complete`, such as `verl_agentic.data.mutated_rows:is_row`. None: no model writes tasks."""
    every: int = setting(10, min=1)
    """Training steps between two requests to the mutator, each about one failed task."""
    mutations: int = setting(4, min=1)
    """Number of new tasks of a request."""

    def check_together(self) -> None:
        check_bounds(self.value_bounds, name="value_bounds")
        if ":" not in self.check:
            raise ConfigError(f"check must be module:function or path.py:function, got {self.check!r}; name both")


class InstructionSettings(Settings):
    """The section `agentic.curriculum.instructions`: instructions are drawn, rewarded and replaced (INSPO)."""

    initial: Sequence[str]
    """The first instructions; one of them may be empty."""
    temperature: float = setting(0.1, above=0)
    """Temperature of the softmax over weights by which an instruction is drawn."""
    memory: float = setting(0.9, min=0, below=1)
    """Factor of the earlier weight when a group is finished; the rest is the mean outcome of the group."""
    size: int = setting(8, min=2)
    """Maximum number of instructions. The one with the lowest weight leaves for a better one."""
    trial_groups: int = setting(4, min=1)
    """Groups that a new instruction is tried on before it joins."""
    every: int = setting(10, min=1)
    """Training steps between two reflections."""
    reflector: Mapping[str, Any] | None = None
    """Model that proposes instructions: `{url, model, api_key_env, temperature, max_tokens, ...}`. None: no new
    instructions."""

    def check_together(self) -> None:
        if not self.initial or len(set(self.initial)) < len(self.initial) or len(self.initial) > self.size:
            raise ConfigError(f"initial must be 1 to size={self.size} different texts, got {list(self.initial)}")


class CurriculumSettings(Settings):
    """The order and the number of attempts of prompts: the section `agentic.curriculum`."""

    name: str
    """Name of the curriculum."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the curriculum."""
    floor: float = setting(0.05, min=0, below=1)
    """Share of the draws that are uniform over all prompts, for curricula whose weights are estimates. With 0, a prompt
    whose weight has become 0 is never drawn again."""
    memory: float = 0.7
    """Factor of a prompt's earlier evidence when a new group of it is finished (`PassRates`)."""
    prior_trials: float = 1.0
    """Number of attempts that the prior pass rate of 1/2 counts as (`PassRates`)."""
    outcome: str = "acc"
    """Key of `reward_extra_info` that holds the outcome of an episode."""
    difficulty_key: str = "extra_info.difficulty"
    """Column of the data that holds the difficulty of a prompt; greater is harder."""
    source_key: str = "data_source"
    """Column of the data that holds the source of a prompt."""
    pass_rate_key: str | None = None
    """Column of the data that holds pass rates measured before training. None: training starts without."""
    group_size: GroupSizeSettings | None = None
    """Groups of different sizes. None: every prompt gets `rollout.n` attempts."""
    task_set: TaskSetSettings | None = None
    """Proposed tasks. None: the prompts are those of the files."""
    instructions: InstructionSettings | None = None
    """Instructions that evolve with the policy (INSPO). None: the prompts stay as they are."""

    def check_together(self) -> None:
        load_curriculum(self.name).check_options(self.options)


def check_bounds(bounds: Any, *, name: str) -> None:
    """Raises ConfigError unless bounds are None, or `[low, high]` with 0 <= low < high <= 1."""
    if bounds is None:
        return
    is_pair = isinstance(bounds, Sequence) and len(bounds) == 2
    if not is_pair or not all(type(bound) in (int, float) for bound in bounds) or not 0 <= bounds[0] < bounds[1] <= 1:
        raise ConfigError(f"{name} must be [low, high] with 0 <= low < high <= 1, got {bounds!r}; or leave it out")
