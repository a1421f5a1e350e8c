"""The type and the registry of gates. A gate is a function that drops groups or sessions before training:

@gate(needs=("acc",))
def solved_once(group: Group, *, at_least: float = 1.0) -> Verdict: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.registry import Registry
from verl_agentic.base.settings import check_options


@dataclass(frozen=True, kw_only=True)
class Session:
    """An episode as a gate sees it. Unknown values are None."""

    is_void: bool = False
    """Whether its environment or its scorer failed."""
    is_external: bool = False
    """Whether a script generated it: it serves as a sibling, but says nothing about the policy."""
    acc: float | None = None
    """The raw outcome, without shaping."""
    reward: float | None = None
    """Sum of the rewards of all of its rows, shaping included."""
    entropy: float | None = None
    """Mean over the sampled tokens, in nats."""
    ratio: float | None = None
    """pi_train / pi_rollout: geometric mean over the sampled tokens."""
    lag: int | None = None
    """Number of weight updates since the weights that it started with."""
    num_tokens: int = 0
    """Response tokens."""


KNOWABLE = frozenset(f.name for f in fields(Session) if f.default is None)
"""Fields of a session that may be unknown."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The episodes of one prompt."""

    uid: str
    sessions: tuple[Session, ...]

    @cached_property
    def valid(self) -> tuple[Session, ...]:
        """The sessions that are not void."""
        return tuple(session for session in self.sessions if not session.is_void)

    @cached_property
    def own(self) -> tuple[Session, ...]:
        """The valid sessions that the policy generated."""
        return tuple(session for session in self.valid if not session.is_external)

    def known(self, name: str, *, own: bool = False) -> list[float]:
        """Returns a field of the valid sessions.

        Args:
            name: a field of `Session`.
            own: leaves out external sessions.

        Raises:
            DataError: the field is unknown for a session.
        """
        values = [getattr(session, name) for session in (self.own if own else self.valid)]
        if any(value is None or (name in ("acc", "reward") and value != value) for value in values):  # also nan
            raise DataError(f"group {self.uid} cannot be judged: {name!r} of its sessions is not known, got {values}")
        return values


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision of a gate on a group."""

    dropped: str = ""
    """Reason for dropping the group, as one word; empty: the group is kept."""
    sessions: frozenset[int] = frozenset()
    """Indices of dropped sessions of a kept group."""


KEEP = Verdict()


def without(group: Group, is_bad: Callable[[Session], bool], *, reason: str) -> Verdict:
    """Drops the policy's valid sessions for which `is_bad` is true, or the group if it is true for all."""
    own_sessions = [(place, s) for place, s in enumerate(group.sessions) if not s.is_void and not s.is_external]
    bad = [place for place, session in own_sessions if is_bad(session)]
    if bad and len(bad) == len(own_sessions):
        return Verdict(dropped=reason)
    return Verdict(sessions=frozenset(bad)) if bad else KEEP


@dataclass(frozen=True, kw_only=True)
class GateType:
    """A gate by name, without options."""

    name: str
    function: Callable[..., Any]
    needs: frozenset[str]
    """Fields of a session that it requires."""
    scope: Literal["group", "groups"]
    """One group, or all candidates at once."""

    def with_options(self, **options: Any) -> Gate:
        """Returns the gate. Raises ConfigError if an option is unknown, missing or invalid."""
        check_options(self.function, options, what=f"gate {self.name!r}")
        gate = Gate(type=self, options=options)
        try:
            gate.judge([])  # raises for invalid options before the first group
        except TypeError as cause:
            raise ConfigError(f"gate {self.name!r} cannot work with {options}, got {cause}") from cause
        return gate


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A gate with its options."""

    type: GateType
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.type.name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """Returns a verdict for every group. Raises DataError if a required field of a session is unknown."""
        if self.type.scope == "groups":
            return self.type.function(groups, **self.options)
        if not groups:
            self.type.function(Group(uid="", sessions=()), **self.options)
        return [self.type.function(group, **self.options) for group in groups]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The result of several gates, one after the other, for a group."""

    group: Group
    """The group, in which dropped sessions are void."""
    gate: str = ""
    """Name of the gate that dropped it; empty: it is kept."""
    reason: str = ""
    """Why."""
    sessions: Mapping[str, int] = field(default_factory=dict)
    """Gate -> sessions that it dropped."""

    @property
    def is_kept(self) -> bool:
        """Returns whether it passed all gates."""
        return not self.gate

    def after(self, name: str, verdict: Verdict) -> Decision:
        """Returns the decision after one more gate and its verdict on `group`."""
        if verdict.dropped:
            return replace(self, gate=name, reason=verdict.dropped)
        if not verdict.sessions:
            return self
        remaining = tuple(
            replace(session, is_void=session.is_void or place in verdict.sessions)
            for place, session in enumerate(self.group.sessions)
        )
        return replace(
            self, group=replace(self.group, sessions=remaining), sessions={**self.sessions, name: len(verdict.sessions)}
        )


def decide(group: Group, gates: Sequence[Gate]) -> Decision:
    """Applies gates that see one group; stops at the first that drops it."""
    decision = Decision(group=group)
    for each in gates:
        if not decision.is_kept:
            break
        decision = decision.after(each.name, each.judge([decision.group])[0])
    return decision


def decide_together(decisions: Sequence[Decision], gates: Sequence[Gate]) -> list[Decision]:
    """Applies gates that see all candidates; a gate does not see groups that an earlier gate dropped."""
    decided = list(decisions)
    for each in gates:
        places = [place for place, decision in enumerate(decided) if decision.is_kept]
        verdicts = each.judge([decided[place].group for place in places])
        for place, verdict in zip(places, verdicts, strict=True):
            decided[place] = decided[place].after(each.name, verdict)
    return decided


def gate(
    *, needs: tuple[str, ...] = (), scope: Literal["group", "groups"] = "group"
) -> Callable[[Callable[..., Any]], GateType]:
    """Makes a gate of a function `(group, *, options) -> Verdict`, or `(groups, *, options) -> list[Verdict]`.

    Args:
        needs: fields of a session that it requires.
        scope: one group, or all candidates at once.
    """
    assert set(needs) <= KNOWABLE, needs

    def make(function: Callable[..., Any]) -> GateType:
        return GateType(name=function.__name__, function=function, needs=frozenset(needs), scope=scope)

    return make


_REGISTRY = Registry[GateType](package="verl_agentic.sampling.gates", what="gate", kind=GateType, decorator="gate")
load_gate, gate_names = _REGISTRY.load, _REGISTRY.names


def to_gates(entries: Any, *, name: str) -> list[Gate]:
    """Reads gates from a list of names and of `{name: ..., option: ...}`.

    Args:
        entries: the value in the configuration.
        name: key in the configuration, for errors.

    Raises:
        ConfigError: the value has another form, a gate is unknown or duplicate, or its options are invalid.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ConfigError(f"{name} must be a list of gates, got {entries!r}; use some of {gate_names()}")
    gates: list[Gate] = []
    for entry in entries:
        options = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
            raise ConfigError(f"{name} must hold names or {{name: ..., option: ...}}, got {entry!r}")
        options = dict(options)
        gates.append(load_gate(options.pop("name")).with_options(**options))
    names = [each.name for each in gates]
    if len(set(names)) < len(names):
        raise ConfigError(f"{name} must name a gate once, got {names}")
    return gates
