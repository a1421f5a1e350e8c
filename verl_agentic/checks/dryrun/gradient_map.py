"""The gradient of a step, token by token, and the tokens that must not have one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.checks.dryrun.events import sampled_flags

_POLICY_KIND = "model"
_TOLERANCE = 1e-6


@dataclass(kw_only=True)
class KindCount:
    """Tokens of the responses that one author wrote."""

    tokens: int = 0
    masked_in: int = 0
    """With mask 1."""
    with_gradient: int = 0


@dataclass(kw_only=True)
class Proof:
    """The result of a proof over all updates of a step."""

    kinds: dict[str, KindCount] = field(default_factory=dict)
    """Author (`model`, `tool`, ..., or `other` if unknown) -> its tokens."""
    rows: int = 0
    rows_with_signal: int = 0
    """Rows with an advantage other than 0."""
    due: int = 0
    """Tokens that the policy wrote, with mask 1 and an advantage other than 0."""
    due_with_gradient: int = 0
    wrong: list[str] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)

    @property
    def num_observed(self) -> int:
        """Tokens of the responses that the policy did not write."""
        return sum(count.tokens for kind, count in self.kinds.items() if kind != _POLICY_KIND)


def prove(updates: Sequence[Mapping[str, Any]], completions: Sequence[dict[str, Any]], *, every_token: bool) -> Proof:
    """Returns the proof of a model's updates.

    Args:
        updates: events `gradient` of one model, in the order of time.
        completions: every turn, sampled or scripted.
        every_token: whether the loss gives every token with an advantage a gradient at the first update, as PPO does
            before clipping.
    """
    proof, faults = Proof(), Counter[str]()
    for number, update in enumerate(updates):
        for row in update["rows"]:
            _count_row(proof, faults, row, completions, is_strict=every_token and number == 0)
        _check_targets(proof, update.get("targets"), has_signal=any(map(_has_signal, update["rows"])))
    proof.wrong += [f"{count} {fault}" for fault, count in faults.items()]
    if not proof.num_observed:
        proof.not_shown.append("there were no observations: their gradient is not shown")
    if not proof.rows_with_signal:
        proof.not_shown.append("no row has an advantage: the gradient of sampled tokens is not shown")
    elif not proof.due_with_gradient:
        proof.wrong.append(f"none of {proof.due} sampled tokens of rows with an advantage has a gradient")
    return proof


def _count_row(
    proof: Proof,
    faults: Counter[str],
    row: Mapping[str, Any],
    completions: Sequence[dict[str, Any]],
    *,
    is_strict: bool,
) -> None:
    start, mask = row["num_prompt"], row["mask"]
    written_flags = sampled_flags(row["ids"], completions)[start:]
    gradients = _sum_outputs(row["gradients"].values(), len(mask))
    advantages = row["advantages"] or [0.0] * len(mask)
    kinds = _find_kinds(row["segments"], written_flags)
    proof.rows += 1
    proof.rows_with_signal += _has_signal(row)
    if max(row["elsewhere"].values(), default=0.0) != 0.0:
        faults["rows have a gradient at their prompt"] += 1
    for kind, is_written, is_in, gradient, advantage in zip(
        kinds, written_flags, mask, gradients, advantages, strict=True
    ):
        count = proof.kinds.setdefault(kind, KindCount())
        count.tokens += 1
        count.masked_in += is_in
        count.with_gradient += gradient != 0.0
        is_due = bool(is_in and is_written and advantage)
        proof.due += is_due
        proof.due_with_gradient += is_due and gradient != 0.0
        others = f"tokens of kind {kind!r} that the policy did not write"
        for fault, is_fault in {
            f"{others} have a gradient": not is_written and gradient != 0.0,
            f"{others} have mask 1": not is_written and is_in,
            "tokens with mask 0 have a gradient": not is_in and gradient != 0.0,
            "tokens have a gradient that is not finite": not math.isfinite(gradient),
            "sampled tokens with an advantage have no gradient": is_strict and is_due and gradient == 0.0,
        }.items():
            if is_fault:
                faults[fault] += 1


def _check_targets(proof: Proof, losses: Mapping[str, float] | None, *, has_signal: bool) -> None:
    if losses is None:
        return
    loss_as_is, loss_not_written, loss_written = losses["as_is"], losses["not_written"], losses["written"]
    if not math.isclose(loss_as_is, loss_not_written, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        proof.wrong.append(
            "other target ids at tokens that the policy did not write change the loss, "
            f"{loss_as_is:.6g} to {loss_not_written:.6g}"
        )
    if has_signal and math.isclose(loss_as_is, loss_written, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        proof.wrong.append(f"other target ids at tokens that the policy wrote leave the loss at {loss_as_is:.6g}")


def _has_signal(row: Mapping[str, Any]) -> bool:
    return any(advantage and is_in for advantage, is_in in zip(row["advantages"], row["mask"], strict=False))


def _sum_outputs(outputs: Iterable[Sequence[float]], length: int) -> list[float]:
    totals = [0.0] * length
    for values in outputs:
        totals = [total + value for total, value in zip(totals, values, strict=True)]
    return totals


def _find_kinds(segments: Sequence[Sequence[Any]], written_flags: Sequence[bool]) -> list[str]:
    """Returns the author of every token; for tokens that the policy did not write, the loop's segment kind."""
    kinds = [_POLICY_KIND if is_written else "other" for is_written in written_flags]
    for start, end, kind, *_ in segments:
        for place in range(start, min(end, len(kinds))):
            if not written_flags[place] and kind != _POLICY_KIND:
                kinds[place] = str(kind)
    return kinds
