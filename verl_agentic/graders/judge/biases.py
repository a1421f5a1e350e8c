"""Biases of a judge: it must value an answer alike whether it is padded, and whatever the user believes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, StopReason
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import gathered, rule
from verl_agentic.graders.judge.probes import read_probes
from verl_agentic.rewards.sample import Sample, Turn

BiasKind = Literal["length", "sycophancy"]


@dataclass(frozen=True, kw_only=True)
class BiasPair:
    """An answer, and the same answer where only the bias could change its value."""

    name: str
    kind: BiasKind
    plain: Sample
    changed: Sample
    direction: float = 1.0
    """1 if a biased judge values the changed one more, -1 if it values it less."""


@dataclass(frozen=True, kw_only=True)
class BiasResult:
    """The values of a pair; None for an abstention."""

    pair: BiasPair
    before: float | None
    after: float | None
    cost: float = 0.0

    @property
    def change(self) -> float | None:
        """The change of the value in the direction of the bias, from -1 to 1; None if the judge abstained."""
        if self.before is None or self.after is None:
            return None
        return self.pair.direction * (self.after - self.before)


def load_pairs() -> list[BiasPair]:
    """Returns four pairs a task: a right and a wrong answer, padded, and to a user who believes the wrong one."""
    content = read_probes()["biases"]
    pairs = []
    for name, task in content["tasks"].items():
        belief = content["belief"].format(wrong=task["wrong"])
        for is_right in (True, False):
            answer = task["answer"].format(value=task["reference" if is_right else "wrong"])
            plain = _make_sample(task["prompt"], answer, task["reference"])
            padded = _make_sample(task["prompt"], f"{answer} {task['padding']}", task["reference"])
            with_belief = replace(plain, prompt=(Message("user", f"{task['prompt']} {belief}"),))
            label = f"{'right' if is_right else 'wrong'}:{name}"
            pairs += [
                BiasPair(name=label, kind="length", plain=plain, changed=padded),
                # The wrong answer agrees with the user, the right one contradicts.
                BiasPair(
                    name=label, kind="sycophancy", plain=plain, changed=with_belief, direction=-1.0 if is_right else 1.0
                ),
            ]
    return pairs


async def measure_biases(
    options: JudgeOptions, *, repeats: int = 1, on_result: Callable[[BiasResult], None] = lambda result: None
) -> list[BiasResult]:
    """Runs both sides of each pair on a panel, `repeats` times, with fresh delimiters each time.

    Raises:
        ConfigError: there is a cache, or the key, the URL or a model is wrong.
    """
    if options.cache is not None:
        raise ConfigError("a judge is probed without a cache, got one; leave cache out")

    async def ask(pair: BiasPair) -> BiasResult:
        before, after = await gathered([rule(options.blocks(sample), options) for sample in (pair.plain, pair.changed)])
        cost = before.costs.cost + after.costs.cost
        result = BiasResult(pair=pair, before=before.value, after=after.value, cost=cost)
        on_result(result)
        return result

    return await gathered([ask(pair) for pair in load_pairs() for _ in range(repeats)])


def summarise_biases(results: Sequence[BiasResult]) -> dict[str, dict[str, Any]]:
    """Returns for each bias `change`, its `stderr`, the numbers of `pairs` and `abstained`, and the pairs that changed.

    `change` is the mean change of the value in the direction of the bias; None if the judge always abstained.
    """
    summary = {}
    for kind in dict.fromkeys(result.pair.kind for result in results):
        kind_results = [result for result in results if result.pair.kind == kind]
        changes = [result.change for result in kind_results if result.change is not None]
        stderr = statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else None
        summary[kind] = {
            "change": statistics.fmean(changes) if changes else None,
            "stderr": stderr,
            "pairs": len(kind_results),
            "abstained": len(kind_results) - len(changes),
            "changed": sorted({result.pair.name for result in kind_results if result.change}),
        }
    return summary


def is_fair(summary: Mapping[str, Mapping[str, Any]], *, max_change: float) -> bool:
    """Returns whether every mean change is known and at most `max_change` in size."""
    return all(bias["change"] is not None and abs(bias["change"]) <= max_change for bias in summary.values())


def _make_sample(prompt: str, answer: str, reference: str) -> Sample:
    return Sample(
        id="bias",
        prompt=(Message("user", prompt),),
        turns=(Turn(index=0, text=answer, content=answer),),
        final_answer=answer,
        stop_reason=StopReason.ANSWERED,
        ground_truth=reference,
    )
