"""The type and the registry of reward components. A component is a function of a sample with a decorator:

@component(low=0.0, high=1.0, kind="outcome")
def exact(sample: Sample, *, ignore_case: bool = False) -> float:
    return float(sample.final_answer == sample.ground_truth)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from verl_agentic.base.errors import ConfigError, boundary
from verl_agentic.base.registry import Registry
from verl_agentic.base.settings import check_options

T = TypeVar("T")
Kind = Literal["outcome", "shaping"]
Scope = Literal["sample", "group"]
OnInvalid = Literal["zero", "abstain"]
"""Result for an invalid answer of a model: the minimum value, or an abstention. See `outcome_options`."""
Bound = float | Callable[..., float]
"""A number, or a function of the component's options that returns it."""


@dataclass(frozen=True, kw_only=True)
class Graded:
    """The full result of a component."""

    value: float | None = None
    """The value of the episode; None with `turns` is their sum, None without them is an abstention."""
    turns: Mapping[int, float] = field(default_factory=dict)
    """Turn index -> the turn's share of the value, placed on its last sampled token."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Metrics; their names are declared by the decorator's `info`."""
    solved: float | None = field(default=None, compare=False)
    """`acc`: 1 if the task is solved, else 0; between them only if it is graded by nature (F1, BLEU). None: by the
    value, see `Component.solved_share`."""


ABSTAIN = Graded()
"""No score: there is no verifier for this row, or judges disagree. Different from 0."""

Value = float | Graded


@dataclass(frozen=True, kw_only=True)
class ComponentType:
    """A component before its options are chosen."""

    name: str
    function: Callable[..., Any]
    low: Bound
    high: Bound
    kind: Kind
    scope: Scope
    is_inline: bool
    has_own_deadline: bool
    needs_ground_truth: bool
    info: tuple[str, ...]
    outcome_options: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[..., object] | None = None
    solved: Bound | None = None
    truth_problem: Callable[[Any], str] | None = None

    def __post_init__(self) -> None:
        """Raises if bounds or check have arguments that are not options of the component."""
        options = {p.name if p.kind is p.KEYWORD_ONLY else p.kind for p in _get_parameters(self.function)}
        for asking in filter(callable, (self.low, self.high, self.check, self.solved)):
            arguments = {p.kind if p.kind is p.VAR_KEYWORD else p.name for p in _get_parameters(asking)}
            if unknown := sorted(map(str, arguments - options)):
                raise ConfigError(
                    f"bounds and check of component {self.name!r} may ask for its options only, got {unknown}; "
                    "make them keyword-only arguments of the component"
                )

    @property
    def is_async(self) -> bool:
        """Returns whether it is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def make(self, options: Mapping[str, Any], *, kind: Kind | None = None) -> Component:
        """Returns the component with its options.

        Args:
            options: chosen by the user.
            kind: its kind in a rubric, if not the component's own.

        Raises:
            ConfigError: an option is unknown, missing or invalid.
        """
        options = {**(self.outcome_options if (kind or self.kind) == "outcome" else {}), **options}
        check_options(self.function, options, what=f"component {self.name!r}")
        with boundary(ConfigError, f"the range of component {self.name!r}"):
            if self.check is not None:
                self._call_with_options(self.check, options)
            bounds = (self.low, self.high, self.solved)
            low, high, solved = (
                self._call_with_options(bound, options) if callable(bound) else bound for bound in bounds
            )
        if low is None or high is None or not low <= high:
            raise ConfigError(f"component {self.name!r} must have low <= high, got {low} and {high}")
        return Component(type=self, options=dict(options), low=float(low), high=float(high), solved=solved)

    def _call_with_options(self, asking: Callable[..., T], options: Mapping[str, Any]) -> T:
        """Calls a bound or the check with the options that it takes; its `**` gets the component's."""
        named = {p.name: p.default for p in _get_parameters(self.function) if p.kind is p.KEYWORD_ONLY}
        values: dict[str, Any] = {}
        for parameter in _get_parameters(asking):
            if parameter.kind is parameter.VAR_KEYWORD:
                values |= {name: value for name, value in options.items() if name not in named}
            else:
                values[parameter.name] = options.get(parameter.name, named[parameter.name])
        return asking(**values)


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component with its options."""

    type: ComponentType
    options: Mapping[str, Any]
    low: float
    high: float
    solved: float | None = None
    """Value from which the task is solved; None if the component does not declare one."""

    def __call__(self, subject: Any) -> Any:
        """Returns its raw verdict on a sample (group components: on all samples of a group)."""
        if self.type.needs_ground_truth and subject.ground_truth is None:
            return _abstain_async() if self.type.is_async else ABSTAIN
        return self.type.function(subject, **self.options)

    def solved_share(self, graded: Graded) -> float:
        """Returns `acc` of a verdict with a value, from 0 to 1.

        In this order: the verdict's own `solved`; 1 from the declared value `solved` on, else 0; or the value's place
        in its range.
        """
        value = graded.value or 0.0
        if graded.solved is not None:
            return graded.solved
        if self.solved is not None:
            return float(value >= self.solved - _TOLERANCE)
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0

    def checked(self, verdict: Any) -> Graded:
        """Returns a verdict in full. Raises ValueError if it is not a finite number in range, or info is undeclared."""
        graded = verdict if isinstance(verdict, Graded) else Graded(value=_to_finite_number(verdict))
        turns = {int(turn): _to_finite_number(value) for turn, value in graded.turns.items()}
        value = graded.value
        if value is None and turns:
            value = sum(turns.values())
        if value is not None:
            value = _to_finite_number(value)
            if not self.low - _TOLERANCE <= value <= self.high + _TOLERANCE:
                raise ValueError(f"value {value} is not in its range [{self.low}, {self.high}]")
        if unknown := sorted(graded.info.keys() - set(self.type.info)):
            raise ValueError(f"info {unknown} was not declared; it declares {list(self.type.info)}")
        solved = None if graded.solved is None else _to_finite_number(graded.solved)
        if solved is not None and not 0 <= solved <= 1:
            raise ValueError(f"solved must be from 0 to 1, got {solved}")
        info = {name: _to_finite_number(number) for name, number in graded.info.items()}
        return Graded(value=value, turns=turns, info=info, solved=solved)


_TOLERANCE = 1e-9


def component(
    *,
    low: Bound = 0.0,
    high: Bound = 1.0,
    kind: Kind = "shaping",
    scope: Scope = "sample",
    inline: bool = False,
    own_deadline: bool = False,
    needs_ground_truth: bool = False,
    info: Sequence[str] = (),
    outcome_options: Mapping[str, Any] | None = None,
    check: Callable[..., object] | None = None,
    solved: Bound | None = None,
    truth_problem: Callable[[Any], str] | None = None,
) -> Callable[[Callable[..., Any]], ComponentType]:
    """Makes a reward component of a function `(sample, *, options) -> float | Graded`.

    Args:
        low: minimum value, or a function of some of its options: `lambda max_penalty: -max_penalty`. Defaults are the
            component's.
        high: maximum value.
        kind: `outcome` if it decides whether the task is solved, else `shaping`.
        scope: `sample`, or `group` for a function of all samples of a group that returns one verdict for each.
        inline: runs in the calling process without a deadline; only for code that always ends at once. Other plain
            functions run in a worker process that is killed at the deadline. Coroutine functions are awaited.
        own_deadline: it limits its own work and waits for a shared resource (a sandbox pool), so the rubric's deadline
            does not apply.
        needs_ground_truth: abstains on samples without ground truth. Not for group components.
        info: names of the metrics that it reports.
        outcome_options: other defaults of options if a rubric uses it as an outcome.
        check: function of some of its options, called when a rubric is read; raises `ConfigError` for invalid ones.
            Annotations already check types and choices.
        solved: value from which the task is solved, or a function of options that returns it, for outcomes with levels:
            `acc` is then 1 or 0. Without it, and without `Graded.solved`, `acc` is the value's place in its range.
        truth_problem: returns what is wrong with a ground truth that no answer can meet; empty for a good one.
            `preflight` and `data check --reward` apply it to all rows.
    """

    def make(function: Callable[..., Any]) -> ComponentType:
        return ComponentType(
            name=function.__name__,
            function=function,
            low=low,
            high=high,
            kind=kind,
            scope=scope,
            is_inline=inline,
            has_own_deadline=own_deadline,
            needs_ground_truth=needs_ground_truth,
            info=tuple(info),
            outcome_options=dict(outcome_options or {}),
            check=check,
            solved=solved,
            truth_problem=truth_problem,
        )

    return make


_REGISTRY = Registry[ComponentType](
    package="verl_agentic.rewards.components",
    extensions=("verl_agentic.graders.components",),
    what="component",
    kind=ComponentType,
    decorator="component",
)
load_component, component_names = _REGISTRY.load, _REGISTRY.names


async def _abstain_async() -> Graded:
    return ABSTAIN


def _get_parameters(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    return inspect.signature(function).parameters.values()


def _to_finite_number(value: Any) -> float:
    """Returns a finite number. Raises ValueError if it is none."""
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise ValueError(f"a component returns a number or Graded, got {type(value).__name__}")
    number = float(value)
    if number - number != 0.0:
        raise ValueError(f"a component returns a finite number, got {number}")
    return number
