"""Reads a judge's answer: exactly one JSON object of the expected form, with the canary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.graders.text.json_answers import load_json_answer

_MAX_CHARS = 100_000
Winner = Literal["A", "B", "tie"]


class Item(Settings):
    """One question of a judge's rubric."""

    name: str
    question: str
    weight: float = setting(1.0, above=0)
    """Share of the value, relative to the other items."""
    scale: int | None = setting(None, min=1)
    """None for passed or not; n for a score from 0 to n, which counts as score / n."""

    def check_together(self) -> None:
        if not self.name or not self.question:
            raise ConfigError(f"name and question must not be empty, got {self.name!r} and {self.question!r}; add them")


CORRECT = Item(name="correct", question="Does the final answer do what the task asks, completely and correctly?")


@dataclass(frozen=True, kw_only=True)
class Invalid:
    """An invalid answer."""

    reason: str


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _without_lone_surrogates(text: Any) -> Any:
    """Returns a text without them: a model that writes `C:\\udecade` does not mean half a character."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


_Reason = Annotated[str, BeforeValidator(_without_lone_surrogates), Field(max_length=20_000)]


class _Passed(_Strict):
    name: str
    reason: _Reason
    passed: bool


class _Scored(_Strict):
    name: str
    reason: _Reason
    score: Annotated[float, Field(allow_inf_nan=False)]


class _Verdict(_Strict):
    canary: str
    items: list[_Passed | _Scored]


class _Preference(_Strict):
    canary: str
    reason: _Reason
    winner: Winner


def read_verdict(text: str, *, items: Sequence[Item], canary: str) -> dict[str, float] | Invalid:
    """Returns item -> value from 0 to 1.

    A valid answer is one JSON object with the canary and each item once, with its name, a reason and its value
    (`passed`, or `score` within the scale). Repeated keys, further objects and other text are invalid, except one code
    fence and thoughts before `</think>`. Backslashes in reasons need not be escaped.
    """
    verdict = _parse_answer(text, _Verdict, canary)
    if isinstance(verdict, Invalid):
        return verdict
    answers = {item.name: item for item in verdict.items}
    if sorted(item.name for item in verdict.items) != sorted(item.name for item in items):
        return Invalid(reason=f"items {[item.name for item in verdict.items]}"[:300])
    values: dict[str, float] = {}
    for item in items:
        value = _compute_value(item, answers[item.name])
        if value is None:
            return Invalid(reason=f"item {item.name!r} is not answered on its scale")
        values[item.name] = value
    return values


def read_preference(text: str, *, canary: str) -> Winner | Invalid:
    """Returns the preferred one of two; invalid as in `read_verdict`."""
    preference = _parse_answer(text, _Preference, canary)
    return preference if isinstance(preference, Invalid) else preference.winner


def _compute_value(item: Item, answer: _Passed | _Scored) -> float | None:
    if isinstance(answer, _Passed):
        return float(answer.passed) if item.scale is None else None
    if item.scale is None or not 0 <= answer.score <= item.scale:
        return None
    return answer.score / item.scale


def _parse_answer(text: str, model: type[Any], canary: str) -> Any:
    """Returns an object of the model with the canary, or the reason why it is invalid."""
    if len(text) > _MAX_CHARS:
        return Invalid(reason=f"{len(text)} characters")
    try:
        # Accepts JSON only, so thoughts that quote an attack cannot become the verdict.
        read = load_json_answer(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        answer = model.model_validate(read)
    except (ValueError, RecursionError) as cause:
        return Invalid(reason=_first_line(cause))
    return answer if answer.canary == canary else Invalid(reason="without the canary")


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a key comes twice")
    return read


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _first_line(cause: Exception) -> str:
    if isinstance(cause, ValidationError):
        error = cause.errors()[0]
        return f"{error['msg']} at {'.'.join(map(str, error['loc']))}"[:300]
    return f"{type(cause).__name__}: {cause}"[:300]
