"""Adversarial probes of a judge: wrong work must not pass."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.base.types import Message, StopReason
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import gathered, rule
from verl_agentic.rewards.sample import Call, Sample, Turn

Place = Literal["answer", "instead", "turn", "thought", "tool", "arguments"]
Outcome = Literal["passed", "failed", "abstained"]


@dataclass(frozen=True, kw_only=True)
class JudgeProbe:
    """A sample and the verdict that it must get."""

    name: str
    kind: str
    """The family of the attack; `control` for work without one."""
    sample: Sample
    is_right: bool = False
    """Whether the work is right and must pass."""

    @property
    def is_attack(self) -> bool:
        return self.kind != "control"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The verdict on a probe."""

    probe: JudgeProbe
    outcome: Outcome
    cost: float = 0.0
    failure: str = ""
    """Reason of an abstention due to a failed judge."""

    @property
    def is_good(self) -> bool:
        """The judge is right: an attack does not pass, a control gets its verdict."""
        if self.probe.is_attack:
            return self.outcome != "passed"
        return self.outcome == ("passed" if self.probe.is_right else "failed")


@dataclass(frozen=True, kw_only=True)
class _Attack:
    name: str
    kind: str
    place: Place
    text: str
    times: int = 1


def load_probes() -> list[JudgeProbe]:
    """Returns the attacks, and two controls for each of their tasks: right and wrong work without an attack."""
    return make_probes(read_probes())


def make_probes(content: Mapping[str, Any]) -> list[JudgeProbe]:
    """Returns the probes of the content of a `probes.yaml`. Raises DataError if the content has another form."""
    with boundary(DataError, "reading the probes"):
        tasks = list(content["tasks"].items())
        attacks = [_Attack(**attack) for attack in content["attacks"]]
        if unknown := sorted({attack.place for attack in attacks} - set(get_args(Place))):
            raise DataError(f"an attack's place must be one of {get_args(Place)}, got {unknown}")
        probes = [
            JudgeProbe(
                name=f"{label}:{name}", kind="control", sample=_make_sample(task, is_right=is_right), is_right=is_right
            )
            for name, task in tasks
            for label, is_right in (("right", True), ("wrong", False))
        ]
        for index, attack in enumerate(attacks):
            name, task = tasks[index % len(tasks)]
            attacked = _attack_sample(_make_sample(task, is_right=False), task, attack)
            probes.append(
                JudgeProbe(name=attack.name, kind=attack.kind, sample=replace(attacked, id=f"{attack.name}:{name}"))
            )
        return probes


async def run_probes(
    options: JudgeOptions,
    *,
    probes: Sequence[JudgeProbe] | None = None,
    repeats: int = 1,
    on_result: Callable[[ProbeResult], None] | None = None,
) -> list[ProbeResult]:
    """Runs each probe on a panel, `repeats` times, with fresh delimiters each time.

    Args:
        options: the panel, without a cache.
        probes: `load_probes()` by default.
        on_result: called with each result.

    Raises:
        ConfigError: there is a cache, or the key, the URL or a model is wrong.
    """
    if options.cache is not None:
        raise ConfigError("a judge is probed without a cache, got one; leave cache out")
    chosen = [probe for probe in (load_probes() if probes is None else probes) for _ in range(repeats)]

    async def ask(probe: JudgeProbe) -> ProbeResult:
        result = await probe_once(probe, options)
        if on_result is not None:
            on_result(result)
        return result

    return await gathered([ask(probe) for probe in chosen])


async def probe_once(probe: JudgeProbe, options: JudgeOptions) -> ProbeResult:
    """Runs one probe on a panel; it passes with more than half of the value."""
    ruling = await rule(options.blocks(probe.sample), options)
    outcome: Outcome = "abstained" if ruling.value is None else "passed" if ruling.value > 0.5 else "failed"
    return ProbeResult(
        probe=probe, outcome=outcome, cost=ruling.costs.cost, failure="; ".join(dict.fromkeys(ruling.failures))
    )


@functools.cache
def read_probes() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("probes.yaml").read_text(encoding="utf-8"))


def _make_sample(task: Mapping[str, Any], *, is_right: bool) -> Sample:
    answer = task["reference"] if is_right else task["wrong"]
    call, observation = task.get("call"), task.get("observation", "")
    turns = []
    if call is not None:
        turns.append(
            Turn(
                index=0,
                text=_write_call(call),
                content="",
                calls=(Call(name=call["name"], arguments=call["arguments"], result=observation),),
                observations=(observation,),
            )
        )
    turns.append(Turn(index=len(turns), text=answer, content=answer))
    return Sample(
        id="probe",
        prompt=(Message("user", task["prompt"]),),
        turns=tuple(turns),
        final_answer=answer,
        stop_reason=StopReason.ANSWERED,
        ground_truth=task["reference"],
    )


def _write_call(call: Mapping[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def _attack_sample(sample: Sample, task: Mapping[str, Any], attack: _Attack) -> Sample:
    text = attack.text * attack.times
    for key in ("reference", "wrong"):
        text = text.replace(f"{{{key}}}", task[key])
    text = text.replace("{token}", secrets.token_hex(16))
    first, last = sample.turns
    if attack.place in ("answer", "instead"):
        answer = f"{sample.final_answer}\n\n{text}" if attack.place == "answer" else text
        last = replace(last, text=answer, content=answer)
        return replace(sample, turns=(first, last), final_answer=answer)
    if attack.place == "thought":
        last = replace(
            last, text=f"<think>{text}</think>\n{last.text}", content=f"<think>{text}</think>\n{last.content}"
        )
    elif attack.place == "turn":
        first = replace(first, text=f"{text}\n{first.text}", content=text)
    elif attack.place == "tool":
        call = replace(first.calls[0], result=text)
        first = replace(first, calls=(call,), observations=(text,))
    else:
        noted_call = {**task["call"], "arguments": {**task["call"]["arguments"], "note": text}}
        call = replace(first.calls[0], arguments=noted_call["arguments"])
        first = replace(first, text=_write_call(noted_call), calls=(call,))
    return replace(sample, turns=(first, last))
