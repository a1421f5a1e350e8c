"""What a curriculum is: a plain function of a pool of prompts with a decorator, and the registry that finds it by name.

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

from verl_agentic.errors import ConfigError
from verl_agentic.registry import Registry
from verl_agentic.sampling.prompts.pass_rates import Floats, PassRates
from verl_agentic.settings import check_options, read_settings

Gives = Literal["weights", "order"]
_COLUMNS = ("difficulty", "source")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What a curriculum knows of N prompts."""

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
class CurriculumType:
    """A curriculum."""

    name: str
    function: Callable[..., NDArray[Any]]
    gives: Gives
    needs: frozenset[str]
    """Columns without which it cannot work."""
    revisits: bool
    """Whether a weight of 0 is an estimate, which must be looked at again, and not a decision."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises when the curriculum has no such options, or lacks one that it must have.

        Raises:
            ConfigError: naming what it has.
        """
        check_options(self.function, options, what=f"curriculum {self.name!r}")

    def __call__(self, pool: Pool, **options: Any) -> NDArray[Any]:
        """Returns a weight >= 0 per prompt, or the prompts in the order of their turn.

        Raises:
            ConfigError: unknown options, or the data lack a column.
        """
        self.check_options(options)
        if missing := sorted(name for name in self.needs if getattr(pool, f"{name}_N") is None):
            raise ConfigError(
                f"curriculum {self.name!r} needs {missing} of every prompt; write them into the data, and their place "
                f"into data.curriculum.{missing[0]}_key"
            )
        given = self.function(pool, **options)
        if self.gives == "weights":
            assert given.shape == (len(pool),) and (given >= 0).all(), self.name
        return given


def curriculum(
    *, needs: tuple[str, ...] = (), gives: Gives = "weights", revisits: bool = False
) -> Callable[[Callable[..., NDArray[Any]]], CurriculumType]:
    """Makes a curriculum of a function `(pool, *, options) -> [N] weights | order`.

    Args:
        needs: columns of `Pool` without which it cannot work.
        gives: weights to draw prompts by, with replacement; or an order in which every prompt comes once an epoch.
        revisits: whether prompts with a weight of 0 are to be looked at again from time to time.
    """
    assert set(needs) <= set(_COLUMNS), needs

    def make(function: Callable[..., NDArray[Any]]) -> CurriculumType:
        return CurriculumType(
            name=function.__name__, function=function, gives=gives, needs=frozenset(needs), revisits=revisits
        )

    return make


_REGISTRY = Registry[CurriculumType](
    package="verl_agentic.sampling.curricula", what="curriculum", kind=CurriculumType, decorator="curriculum"
)
load_curriculum, curriculum_names = _REGISTRY.load, _REGISTRY.names


@dataclass(frozen=True, kw_only=True)
class GroupSizeSettings:
    """The section `data.curriculum.group_size`: prompts get groups of different sizes, `rollout.n` on average."""

    least: int
    """Attempts that every prompt gets."""
    most: int
    """Attempts that no prompt gets more of."""

    def __post_init__(self) -> None:
        if not 2 <= self.least <= self.most:
            raise ConfigError(
                f"data.curriculum.group_size needs 2 <= least <= most, got {self.least} and {self.most}; a group of "
                "one has no siblings to compare with"
            )


@dataclass(frozen=True, kw_only=True)
class TaskSetSettings:
    """The section `data.curriculum.task_set`: tasks that are proposed while training joins the data."""

    proposals: str
    """JSON lines file that proposers append rows to, with the columns of the data; need not exist yet."""
    check: str
    """`module:function` or `path.py:function` of a row; returns True when the task can be posed. What it raises counts
    as False."""
    patience: int = 4
    """Groups in a row, solved throughout or not at all, after which a proposed task leaves."""
    value_bounds: Sequence[float] | None = None
    """`[low, high]`: a proposed task leaves as soon as a group of it is finished and its running rate lies outside
    (WebRL: `[0.05, 0.75]`). WebRL asks its critic for the value before it poses a task; here the rate of attempts,
    which is an estimate of it, decides who stays. None: by `patience` alone."""

    def __post_init__(self) -> None:
        check_bounds(self.value_bounds, name="data.curriculum.task_set.value_bounds")
        if ":" not in self.check or self.patience < 1:
            raise ConfigError(
                f"data.curriculum.task_set needs check=module:function or path.py:function, and patience >= 1, got "
                f"{self.check!r} and {self.patience}"
            )


@dataclass(frozen=True, kw_only=True)
class CurriculumSettings:
    """The section `data.curriculum`."""

    name: str
    """Which curriculum."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of that curriculum."""
    floor: float = 0.05
    """Share of the draws that are uniform over all prompts, for curricula whose weights are estimates: without it, a
    prompt whose weight has become 0 would never be seen again."""
    memory: float = 0.7
    """What is left of a prompt's earlier evidence when a new group of it is finished (`PassRates`)."""
    prior_trials: float = 1.0
    """How many attempts the prior rate of 1/2 is worth (`PassRates`)."""
    outcome: str = "acc"
    """Which number of an episode (`reward_extra_info`) is its outcome."""
    difficulty_key: str = "extra_info.difficulty"
    source_key: str = "data_source"
    pass_rate_key: str | None = None
    """Where the data hold pass rates that were measured before, as a start."""
    group_size: GroupSizeSettings | None = None
    """None: every prompt gets `rollout.n` attempts."""
    task_set: TaskSetSettings | None = None
    """None: the prompts are those of the files."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor < 1:
            raise ConfigError(f"data.curriculum.floor must be at least 0 and below 1, got {self.floor}")
        load_curriculum(self.name).check_options(self.options)

    @classmethod
    def from_mapping(cls, values: Any) -> CurriculumSettings:
        """Returns the settings that a config writes.

        Raises:
            ConfigError: unknown keys, or values that cannot work.
        """
        return read_settings(cls, values, section="data.curriculum")


def check_bounds(bounds: Any, *, name: str) -> None:
    """Raises unless bounds are None, or `[low, high]` with 0 <= low < high <= 1.

    Raises:
        ConfigError: naming the key.
    """
    if bounds is None:
        return
    is_pair = isinstance(bounds, Sequence) and len(bounds) == 2
    if not is_pair or not all(type(bound) in (int, float) for bound in bounds) or not 0 <= bounds[0] < bounds[1] <= 1:
        raise ConfigError(f"{name} must be [low, high] with 0 <= low < high <= 1, got {bounds!r}; or leave it out")
