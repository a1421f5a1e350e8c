"""One reader of sections refuses a misspelt key and a value of a wrong type, whatever the dataclass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Bounds, Settings, check_options, check_value, read_settings, setting


class Inner(Settings):
    least: int
    most: int = 8


class Outer(Settings):
    name: str
    share: float = setting(0.5, min=0, below=2)
    kind: Literal["mean", "max"] = "mean"
    names: Sequence[str] = ()
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    inner: Inner | None = None
    counts: tuple[int, ...] = setting((), min=1)
    upper: str = setting("", read=lambda value, *, name: str(value).upper())

    def check_together(self) -> None:
        if self.share > 1 and not self.names:
            raise ConfigError(f"share must be at most 1 without names, got {self.share}; lower it")
        if self.kind == "max" and not self.names:
            raise ConfigError("a maximum needs names, got none; add one")


def test_a_section_becomes_its_dataclass_with_sections_of_its_own() -> None:
    values = {"name": "x", "inner": {"least": 2}, "weights": {"a": 1}, "names": ["b"]}
    read = read_settings(Outer, values, section="my.part", share=0.25)
    assert read == Outer(name="x", share=0.25, inner=Inner(least=2), weights={"a": 1}, names=["b"])
    assert read_settings(Outer, {"name": "x", "inner": None}, section="my.part").inner is None
    assert read_settings(Outer, {"name": "x", "counts": [1, 2], "upper": "a"}, section="s") == Outer(
        name="x", counts=(1, 2), upper="A"
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": "x", "shar": 1}, r"unknown keys in my.part, got \['shar'\]; known ones: .*; did you mean 'share'\?"),
        ({}, r"my.part must have \['name'\], got \[\]"),
        (None, r"my.part must have \['name'\], got \[\]"),
        ([], "my.part must be a section of keys, got"),
        (True, "my.part must be a section of keys, got True"),
        ({"name": 3}, "my.part.name must be text, got 3"),
        ({"name": "x", "share": True}, r"my.part.share must be a number \(at least 0 and below 2\), got True; change"),
        ({"name": "x", "share": math.nan}, "my.part.share must be a number .*, got nan"),
        ({"name": "x", "share": -0.1}, "my.part.share must be a number .*, got -0.1"),
        ({"name": "x", "share": 2.0}, "my.part.share must be a number .*, got 2.0"),
        ({"name": "x", "share": 1.5}, "^my.part.share must be at most 1 without names, got 1.5; lower it"),
        ({"name": "x", "kind": "max"}, "^my.part: a maximum needs names"),
        (
            {"name": "x", "counts": [1, 0]},
            r"my.part.counts must be a list of whole numbers \(at least 1\), got",
        ),
        ({"name": "x", "weights": {"a": math.inf}}, "my.part.weights must be a section of numbers, got {'a': inf}"),
        ({"name": "x", "kind": "Mean"}, r"my.part.kind must be one of \['mean', 'max'\], got 'Mean'"),
        ({"name": "x", "names": "ab"}, "my.part.names must be a list of texts, got 'ab'"),
        ({"name": "x", "names": [1]}, "my.part.names must be a list of texts"),
        ({"name": "x", "weights": {"a": "b"}}, "my.part.weights must be a section of numbers, got {'a': 'b'}"),
        ({"name": "x", "inner": {"lest": 2}}, r"unknown keys in my.part.inner, got \['lest'\].*'least'"),
        ({"name": "x", "inner": {"least": 2.0}}, "my.part.inner.least must be a whole number, got 2.0"),
        ({"name": "x", "inner": 4}, "my.part.inner must be a section of keys or null, got 4"),
    ],
)
def test_what_a_section_cannot_hold_is_refused_by_its_path(values: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_settings(Outer, values, section="my.part")


@pytest.mark.parametrize("wrong", [{"share": True}, {"share": math.inf}, {"share": 3}, {"name": 1}, {"kind": "min"}])
def test_an_object_that_breaks_the_rules_cannot_be_made(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"^{name} must be .*, got {wrong[name]!r}; change it"):
        Outer(**{"name": "x", **wrong})
    with pytest.raises(ConfigError, match=f"^{name} must be"):
        dataclasses.replace(Outer(name="x"), **wrong)


@pytest.mark.parametrize(
    ("bounds", "accepted", "refused"),
    [
        ({"min": 1}, (1, 1e300), (0.999, math.inf)),
        ({"above": 0}, (1e-300,), (0, -1)),
        ({"min": 0, "max": 1}, (0, 1), (-1e-9, 1 + 1e-9)),
        ({"above": 0, "below": 1}, (0.5,), (0, 1)),
        ({}, (-1e300, 1e300), (math.inf, -math.inf, math.nan)),
    ],
)
def test_bounds_hold_what_they_say(
    bounds: dict[str, float], accepted: Sequence[float], refused: Sequence[float]
) -> None:
    made = Bounds(**bounds)
    assert all(made.hold(value) for value in accepted) and not any(made.hold(value) for value in refused)


def test_options_are_the_keyword_arguments_of_a_function() -> None:
    def function(batch: Any, *, share: float, by: Literal["a", "b"] = "a") -> None: ...

    def any_of(batch: Any, *, share: float = 1.0, **others: Any) -> None: ...

    assert check_options(function, {"share": 1}, what="f") == {"share": 1}
    assert check_options(any_of, {"other": 1}, what="f") == {"other": 1}
    for options, says in (
        ({"shar": 1}, r"f has no options \['shar'\]"),
        ({}, r"f needs the options \['share'\]"),
        ({"share": "1"}, "option share of f must be a number, got '1'"),
        ({"share": 1, "by": "c"}, r"option by of f must be one of \['a', 'b'\]"),
        ([], r"the options of f must be a section of keys, got \[\]"),
    ):
        with pytest.raises(ConfigError, match=says):
            check_options(function, options, what="f")


def test_annotations_that_say_nothing_of_a_configuration_accept_all() -> None:
    for kind in (Any, object, "not resolved", TypeError):
        check_value(object(), kind, name="x")
