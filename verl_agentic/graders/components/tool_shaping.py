"""Small rewards for using the right tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_agentic.base.errors import DataError
from verl_agentic.rewards.answers.tool_calls import call_key, was_carried_out
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import clip_total

_NEEDED, _DUPLICATE, _UNKNOWN = 0.1, -0.05, -0.3


@component(low=lambda max_penalty: -max_penalty, high=_NEEDED, inline=True, info=("duplicates", "unknown_tools"))
def tool_shaping(sample: Sample, *, needed: Sequence[str] = (), max_penalty: float = 0.5) -> Graded:
    """Returns 0.1 once all needed tools were used - 0.05 per call that repeats the one before - 0.3 per unknown tool.

    Each turn gets its own share. Repeated calls are also penalised across turns.

    Args:
        needed: tools that the task needs, if the row lacks `extra_info.needed_tools`. Empty: no reward.
        max_penalty: maximum total penalty.
    """
    tools = sample.extra.get("needed_tools")
    tools = needed if tools is None else tools
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not all(isinstance(tool, str) for tool in tools):
        raise DataError(f"extra_info.needed_tools must be a list of names of tools, got {tools!r}; fix the row")
    payments = list(_iter_payments(sample, tools))
    graded = clip_total(payments, low=-max_penalty, high=_NEEDED)
    amounts = [amount for _, amount in payments]
    info = {"duplicates": float(amounts.count(_DUPLICATE)), "unknown_tools": float(amounts.count(_UNKNOWN))}
    return Graded(value=graded.value, turns=graded.turns, info=info)


def _iter_payments(sample: Sample, needed: Sequence[str]) -> Iterator[tuple[int, float]]:
    missing, previous = set(needed), None
    for turn in sample.turns:
        for call in turn.calls:
            key = call_key(call)
            if key == previous:
                yield turn.index, _DUPLICATE
            if call.error_kind == "unknown_tool":
                yield turn.index, _UNKNOWN
            if call.name in missing and was_carried_out(call):
                missing.remove(call.name)
                if not missing:
                    yield turn.index, _NEEDED
            previous = key
