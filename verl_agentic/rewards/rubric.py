"""A rubric: reward components with weights, caps and gates, checked before the first sample is scored.

components:
  - {use: math, weight: 1.0}
  - {use: format_r1, weight: 0.2, cap: 0.2, only_if: {math: 1.0}}
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.rewards.component import Component, Kind, load_component

OnError = Literal["void", "stop"]
MaskedStop = Literal["max_turns", "max_tokens", "context_full", "no_action"]
MIN_OUTCOME_SHARE = 0.5


class Entry(Settings):
    """An entry of `components`: a component with its place in the rubric."""

    use: str
    """The component: its name, `module:function`, or `path.py:function`. A worker process loads it by this."""
    options: Mapping[str, Any] | None = None
    """Options of the component."""
    name: str = ""
    """Name in metrics and in other entries. Empty: the name of the component."""
    kind: Kind | None = None
    """`outcome` or `shaping`. None: the kind of the component, or `outcome` for the fallback of an outcome."""
    weight: float = 1.0
    """Factor of the component's value. 0: a held-out grader, which is only measured."""
    cap: float | None = setting(None, above=0)
    """Maximum absolute contribution, after the weight."""
    only_if: Mapping[str, float] | None = None
    """Names of other entries -> minimum raw value for this entry to count."""
    unless: Mapping[str, float] | None = None
    """Names of other entries -> raw value that they must stay below for this entry to count."""
    fallback_for: str | None = None
    """Used only if that entry abstains, for example for rows without a verifier. The fallback of an outcome is an
    outcome, unless it has a `kind`."""
    data_sources: Sequence[str] | None = None
    """Used only for rows of these sources. None: for all rows."""
    timeout_s: float | None = setting(None, above=0)
    """Deadline for one sample, or one group, in seconds. None: the rubric's."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A component with its place in the rubric; see `Entry`."""

    name: str
    use: str
    component: Component
    kind: Kind
    weight: float = 1.0
    cap: float | None = None
    only_if: Mapping[str, float] = field(default_factory=dict)
    unless: Mapping[str, float] = field(default_factory=dict)
    fallback_for: str | None = None
    data_sources: tuple[str, ...] = ()
    timeout_s: float | None = None

    @property
    def is_held_out(self) -> bool:
        """Returns whether it is a grader of weight 0, which is only measured."""
        return self.weight == 0

    @property
    def bounds(self) -> tuple[float, float]:
        """Minimum and maximum contribution."""
        if self.is_held_out:  # also if the component is unbounded
            return 0.0, 0.0
        low, high = sorted((self.weight * self.component.low, self.weight * self.component.high))
        return (low, high) if self.cap is None else (max(low, -self.cap), min(high, self.cap))

    @property
    def needs(self) -> set[str]:
        """The terms that must be known before this one."""
        return {*self.only_if, *self.unless, *([self.fallback_for] if self.fallback_for else [])}

    def weigh(self, value: float) -> float:
        """Returns the contribution of a raw value."""
        low, high = self.bounds
        return 0.0 if self.is_held_out else min(max(self.weight * value, low), high)


class RubricSettings(Settings):
    """A rubric: a section of the run's configuration, or a YAML file of its own."""

    components: Sequence[Mapping[str, Any]] = ()
    """The entries of the rubric."""
    on_error: OnError = "void"
    """Action for a sample whose scorer fails: `void` masks it out of loss and statistics, `stop` ends the run."""
    timeout_s: float = setting(30.0, above=0)
    """Deadline of each component for one sample, in seconds, unless its entry has its own."""
    mask_overlong: int | None = setting(None, min=0)
    """Masks samples truncated by a budget or with more sampled tokens than this (0: any). None: they are scored."""
    mask_stops: Sequence[MaskedStop] = ()
    """Masks samples that end for one of these reasons. With `max_turns`, `max_tokens` and `context_full` this is
    DeepSWE's compact filtering; its third reason, a timeout, is always void."""


class Rubric(RubricSettings):
    """The terms that score a trajectory."""

    terms: tuple[Term, ...]
    """Ordered so that every term comes after those that it needs."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, section: str = "rubric") -> Rubric:
        """Returns the rubric of a config section.

        Raises:
            ConfigError: a key, component, option or gate is unknown; there is no outcome; or shaping is unbounded,
                exceeds the outcome, or can make a failure better than a success.
        """
        settings = read_settings(RubricSettings, values, section=section)
        if not settings.components:
            raise ConfigError(f"{section}.components must be a list of components, got []; add one")
        entry_sections = [f"{section}.components[{place}]" for place in range(len(settings.components))]
        entries = [
            read_settings(Entry, component, section=entry_section)
            for entry_section, component in zip(entry_sections, settings.components, strict=True)
        ]
        kinds = _resolve_kinds(entries)
        terms = [_make_term(*each) for each in zip(entries, kinds, entry_sections, strict=True)]
        rubric = cls(terms=tuple(_order_terms(terms, section)), **vars(settings))
        _check_shares(rubric, section)
        return rubric

    @classmethod
    def from_file(cls, path: Path) -> Rubric:
        """Reads a YAML file: its top level, its key `rubric`, or that of a run's `agentic` or `reward`.

        Raises ConfigError as `from_mapping`, and if there is no such file.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as cause:
            raise ConfigError(f"cannot read the rubric {str(path)!r}, got {cause}; give a YAML file") from cause
        if not isinstance(values, Mapping):
            raise ConfigError(f"a rubric must be a mapping, got {type(values).__name__} in {str(path)!r}")
        values = next((values[root] for root in ("agentic", "reward") if "rubric" in (values.get(root) or ())), values)
        return cls.from_mapping(values.get("rubric", values), section=str(path))

    @classmethod
    def from_config(cls, reward: Any) -> Rubric:
        """Reads `rubric` of verl's section `reward`: a mapping or a path. Raises ConfigError as `from_mapping`."""
        rubric_config = reward.get("rubric")
        if isinstance(rubric_config, str):
            return cls.from_file(Path(rubric_config))
        if not isinstance(rubric_config, Mapping):
            raise ConfigError(
                "the reward manager 'rubric' needs reward.rubric: components, or the path of a YAML file, got "
                f"{rubric_config!r}"
            )
        return cls.from_mapping(rubric_config, section="reward.rubric")

    @property
    def outcomes(self) -> tuple[Term, ...]:
        """The outcome terms, without held-out ones."""
        return tuple(term for term in self.terms if term.kind == "outcome" and not term.is_held_out)

    @property
    def group_terms(self) -> frozenset[str]:
        """Names of the terms that see the whole group, and of those that depend on them."""
        waiting: set[str] = set()
        for term in self.terms:  # each stands behind those that it needs
            if term.component.type.scope == "group" or term.needs & waiting:
                waiting.add(term.name)
        return frozenset(waiting)

    @property
    def outcome_share(self) -> float:
        """Maximum weight of the outcome over the maximum weight of all terms."""
        return _sum_max_weights(self.outcomes) / (_sum_max_weights(self.terms) or math.inf)

    def term(self, name: str) -> Term:
        return next(term for term in self.terms if term.name == name)


def _resolve_kinds(entries: Sequence[Entry]) -> list[Kind]:
    """Returns the kinds of entries; the fallback of an outcome, or of its fallback, is an outcome."""
    types = [load_component(entry.use) for entry in entries]
    kinds: list[Kind] = [
        entry.kind or component_type.kind for entry, component_type in zip(entries, types, strict=True)
    ]
    names = [entry.name or component_type.name for entry, component_type in zip(entries, types, strict=True)]
    for _ in entries:  # as long as a chain of fallbacks can be
        outcomes = {name for name, kind in zip(names, kinds, strict=True) if kind == "outcome"}
        kinds = [
            "outcome" if entry.kind is None and entry.fallback_for in outcomes else kind
            for entry, kind in zip(entries, kinds, strict=True)
        ]
    return kinds


def _make_term(entry: Entry, kind: Kind, section: str) -> Term:
    component = load_component(entry.use)
    if kind == "outcome" and entry.weight < 0:
        raise ConfigError(
            f"{section}.weight must be at least 0 for an outcome, got {entry.weight!r}; 0 makes it a held-out grader"
        )
    return Term(
        name=entry.name or component.name,
        use=entry.use,
        component=component.make(entry.options or {}, kind=kind),
        kind=kind,
        weight=float(entry.weight),
        cap=None if entry.cap is None else float(entry.cap),
        only_if=entry.only_if or {},
        unless=entry.unless or {},
        fallback_for=entry.fallback_for,
        data_sources=tuple(entry.data_sources or ()),
        timeout_s=entry.timeout_s,
    )


def _order_terms(terms: Sequence[Term], section: str) -> list[Term]:
    """Returns the terms, each after those that it needs."""
    names = [term.name for term in terms]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{section} has two components of one name, got {twice}; give one of them another `name`")
    for term in terms:
        if unknown := sorted(term.needs - set(names)):
            raise ConfigError(f"{section}: component {term.name!r} depends on {unknown}; it has {sorted(names)}")
    ordered: list[Term] = []
    remaining = list(terms)
    while remaining:
        ordered_names = {term.name for term in ordered}
        ready = [term for term in remaining if term.needs <= ordered_names]
        if not ready:
            raise ConfigError(f"{section}: the components {sorted(t.name for t in remaining)} depend on each other")
        ordered += ready
        remaining = [term for term in remaining if term not in ready]
    return ordered


def _check_shares(rubric: Rubric, section: str) -> None:
    """Checks that shaping cannot exceed the outcome.

    Raises:
        ConfigError: there is no outcome, a term is unbounded, the outcome is less than half of the reward, or shaping
            can make a failure better than a success.
    """
    if not rubric.outcomes:
        raise ConfigError(
            f"{section} has no outcome of a weight greater than 0; add one that tells whether the task was done, "
            "or `kind: outcome`"
        )
    for term in rubric.terms:
        if not all(map(math.isfinite, term.bounds)):
            raise ConfigError(f"{section}: component {term.name!r} has no bound, got {term.bounds}; give it a `cap`")
    shaping = [term for term in rubric.terms if term.kind == "shaping"]
    if rubric.outcome_share < MIN_OUTCOME_SHARE:
        raise ConfigError(
            f"{section}: the outcome must weigh at least half of the reward, got a share of "
            f"{rubric.outcome_share:.4f}; lower the weights or caps of {[term.name for term in shaping]}"
        )
    bonus, penalty, gap = _max_bonus_of_failure(rubric), _max_penalty_of_success(rubric), _min_outcome_gap(rubric)
    if bonus + penalty >= gap and shaping:
        raise ConfigError(
            f"{section}: shaping can override the outcome, got up to {bonus:g} for a failure and down to {-penalty:g} "
            f"for a success, where success and failure are {gap:g} apart; lower the caps, or gate it by `only_if` "
            "or `unless`"
        )


def _max_bonus_of_failure(rubric: Rubric) -> float:
    """Returns the maximum that shaping can add to a failure: all shaping that is not limited to successes."""
    shaping = (term for term in rubric.terms if term.kind == "shaping")
    return sum(max(t.bounds[1], 0.0) for t in shaping if not _is_gated(t.only_if, rubric, compare=operator.ge))


def _max_penalty_of_success(rubric: Rubric) -> float:
    """Returns the maximum that shaping can subtract from a success: all shaping that is not limited to failures."""
    shaping = (term for term in rubric.terms if term.kind == "shaping")
    return -sum(min(t.bounds[0], 0.0) for t in shaping if not _is_gated(t.unless, rubric, compare=operator.le))


def _min_outcome_gap(rubric: Rubric) -> float:
    """Returns the minimum difference of the outcomes between success and failure, over all rows.

    Every row has the unconditional outcomes, and possibly one for its data source. A fallback may be the only outcome
    of a row.
    """
    conditional = [term for term in rubric.outcomes if term.data_sources or term.fallback_for]
    always = sum(_compute_span(term) for term in rubric.outcomes if term not in conditional)
    gaps = [always + _compute_span(term) for term in conditional] or [always]
    if any(term.fallback_for for term in conditional):
        gaps += [_compute_span(term) for term in conditional]
    return min(gaps)


def _compute_span(term: Term) -> float:
    low, high = term.bounds
    return high - low


def _is_gated(gate: Mapping[str, float], rubric: Rubric, *, compare: Callable[[float, float], bool]) -> bool:
    """Returns whether a gate separates successes from failures: `compare(value, full outcome)` holds."""
    outcomes = {outcome.name: outcome for outcome in rubric.outcomes}
    return any(name in outcomes and compare(value, outcomes[name].component.high) for name, value in gate.items())


def _sum_max_weights(terms: Sequence[Term]) -> float:
    """Returns the maximum weight of terms; a fallback does not add to the term that it replaces."""
    return sum(max(map(abs, term.bounds)) for term in terms if term.fallback_for is None)
