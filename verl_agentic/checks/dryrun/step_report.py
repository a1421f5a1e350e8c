"""The report of a dry run: time, finding and status of each stage."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_agentic.base.finding import Finding
from verl_agentic.checks.dryrun.events import STAGES, Events
from verl_agentic.checks.dryrun.gradient_map import Proof, prove

Status = Literal["ok", "warn", "fail", "not reached"]
_VOID = ("timeout", "infra_error", "cancelled")
_MAX_PROBS_DIFF = 1e-3
_CELL_CHARS = 200
_TITLES = {
    "start": "start: workers, engine, rollout server",
    "rollout": "agent loop",
    "reward": "reward",
    "log_probs": "log-probs",
    "advantage": "advantage",
    "critic": "critic",
    "gradient": "loss and gradient",
    "update": "update",
    "weights": "weights to the rollout server",
}
_LINE_PREFIX = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=[^)]*\)\s?")
_EXCEPTION = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)")


@dataclass(kw_only=True)
class Stage:
    """One stage of a step."""

    name: str
    status: Status = "ok"
    seconds: float | None = None
    seen: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """The reason of its failure, or the case that did not occur."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return _TITLES.get(self.name, self.name)

    @property
    def finding(self) -> Finding:
        """Its finding for people."""
        status = "unknown" if self.status == "not reached" else self.status
        lines = [*self.seen, *self.wrong, *(["not reached"] if status == "unknown" else [])]
        seconds = "" if self.seconds is None else f", {self.seconds:.1f} s"
        return Finding(check=f"{self.title}{seconds}", status=status, found="\n".join(lines))

    def fail(self, why: str) -> None:
        """Makes the stage a failed one."""
        self.status = "fail"
        self.wrong.append(why)

    def warn(self, why: str) -> None:
        """Adds a case that the stage could not show."""
        self.status = "warn" if self.status == "ok" else self.status
        self.wrong.append(why)


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """The error that ended the run."""

    stage: str
    type: str
    message: str
    where: str = ""
    trace: str = ""


@dataclass(kw_only=True)
class Report:
    """The report of a run."""

    stages: list[Stage]
    proof: Proof | None
    error: FirstError | None = None

    @property
    def is_right(self) -> bool:
        """Returns whether every stage was reached and none failed."""
        return self.error is None and all(stage.status in ("ok", "warn") for stage in self.stages)

    @property
    def shown(self) -> str:
        """The result of the proof in one sentence; empty if a stage failed or a case did not occur."""
        proof = self.proof
        if proof is None or proof.wrong or proof.not_shown:
            return ""
        return (
            f"Shown: the gradient of the loss is exactly 0 on all {proof.num_observed} tokens that the policy did not "
            f"write, and on {proof.due_with_gradient} of {proof.due} sampled tokens with an advantage it is not."
        )


@dataclass(frozen=True, kw_only=True)
class ExpectedStep:
    """Values of the configuration that the report needs."""

    loss_mode: str = "vanilla"
    has_correction: bool = False
    """Whether a rollout correction weighs or drops rows or tokens."""
    has_critic: bool = False
    scripted: bool = False
    """Whether some sessions follow the environment's solution."""


def build_report(
    events: Events,
    *,
    completions: Sequence[dict[str, Any]],
    metrics: Mapping[str, float],
    expected: ExpectedStep,
    log: str = "",
    ended_well: bool,
) -> Report:
    """Returns the report of a run that has ended.

    Args:
        events: of its processes.
        completions: every turn that was sampled or scripted.
        metrics: verl's, of the step.
        expected: values of the configuration.
        log: output of the run.
        ended_well: whether its exit code was 0.
    """
    error = first_error(events, log=log) if not ended_well or events.of("error") else None
    if error is None or STAGES.index(error.stage) > STAGES.index("reward"):
        error = (
            _find_void_reason(events) or error
        )  # no row has a token to train on, which later stages say in other words
    rows = [row for event in events.of("rows") for row in event["rows"]]
    gradients = {"log_probs": [], "values": []}
    for event in events.of("gradient"):
        outputs = {name for row in event["rows"] for name in row["gradients"]}
        gradients["values" if "values" in outputs else "log_probs"].append(event)
    strict = expected.loss_mode == "vanilla" and not expected.has_correction
    proof = prove(gradients["log_probs"], completions, every_token=strict) if gradients["log_probs"] else None
    look: dict[str, Callable[[Stage], None]] = {
        "rollout": lambda stage: (
            _judge_rollout(stage, rows, completions) if rows else _note_stored_episodes(stage, events)
        ),
        "reward": lambda stage: _judge_reward(stage, rows, expected),
        "log_probs": lambda stage: _judge_log_probs(stage, metrics),
        "advantage": lambda stage: _judge_advantage(stage, rows, metrics),
        "critic": lambda stage: _judge_critic(stage, gradients["values"], completions, events),
        "gradient": lambda stage: _judge_gradient(stage, proof),
        "update": lambda stage: _judge_update(stage, events, proof),
        "weights": lambda stage: _judge_weights(stage, events),
    }
    stages = []
    for name in _list_stages(expected):
        stage = Stage(name=name, seconds=_sum_seconds(events, name, metrics))
        if not _is_reached(name, events, rows, proof):
            stage.status = "not reached"
        elif name in look:
            look[name](stage)
        stages.append(stage)
    if error is not None:
        failed = next((stage for stage in stages if stage.name == error.stage), stages[0])
        failed.status = "ok" if failed.status == "not reached" else failed.status
        failed.fail(f"{error.type}: {error.message.strip().partition(chr(10))[0][:_CELL_CHARS]}")
    return Report(stages=stages, proof=proof, error=error)


def first_error(events: Events, *, log: str) -> FirstError:
    """Returns the first error: the earliest exception in the events, else the first one in the log."""
    for event in events.of("error"):
        if event["type"] in ("SystemExit", "KeyboardInterrupt"):
            continue
        stage = event["stage"] or _find_open_stage(events)
        names = ("type", "message", "where", "trace")
        error = FirstError(stage=stage, **{name: event[name] for name in names})
        inner = _find_exception(error.message) if "ray::" in error.message or error.type.startswith("Ray") else None
        return error if inner is None else FirstError(stage=stage, type=inner[0], message=inner[1], trace=error.trace)
    inner = _find_exception(log)
    kind, message = inner or ("RunError", "the run ended without an error message; see its log")
    return FirstError(stage=_find_open_stage(events), type=kind, message=message)


def _find_void_reason(events: Events) -> FirstError | None:
    """Returns the most frequent reason of void episodes if all are void."""
    episodes = events.of("episode")
    if not episodes or not all(episode["is_void"] for episode in episodes):
        return None
    reasons = Counter(episode["error"] or f"stopped by {episode['stop_reason']}" for episode in episodes)
    reason, count = reasons.most_common(1)[0]
    # A rubric or reward function makes rows void whose episodes have ended well.
    is_scoring = "ScoringError" in reason or episodes[0]["stop_reason"] not in _VOID
    message = f"all {len(episodes)} episodes are void, {count} of them by: {reason}"
    return FirstError(stage="reward" if is_scoring else "rollout", type="VoidEpisodes", message=message)


def _find_exception(text: str) -> tuple[str, str] | None:
    """Returns type and message of the first exception in a text; Ray's own exceptions come last."""
    exceptions = []
    for line in text.splitlines():
        match = _EXCEPTION.match(_LINE_PREFIX.sub("", _LINE_PREFIX.sub("", line)).strip())
        if match is not None:
            exceptions.append((match[1].rpartition(".")[2], match[2], match[1].startswith("ray.")))
    exceptions.sort(key=lambda entry: entry[2])
    return exceptions[0][:2] if exceptions else None


def _find_open_stage(events: Events) -> str:
    """Returns the stage that has begun and not ended."""
    ended = Counter(event["stage"] for event in events.of("stage"))
    begun = Counter(event["stage"] for event in events.of("begin"))
    unended = [stage for stage in STAGES if begun[stage] > ended[stage]]
    if unended:
        return unended[0]
    last = [event["stage"] for event in events.of("stage")]
    return last[-1] if last else "start"


def _list_stages(expected: ExpectedStep) -> list[str]:
    order = ["start", "rollout", "reward", "log_probs", "advantage", "critic", "gradient", "update", "weights"]
    return [name for name in order if name != "critic" or expected.has_critic]


def _is_reached(name: str, events: Events, rows: Sequence[Any], proof: Proof | None) -> bool:
    if name in ("rollout", "reward", "advantage"):
        return bool(rows) or (name == "rollout" and bool(events.of("episode")))
    if name == "gradient":
        return proof is not None
    if name == "update":
        return any(event["output"] == "log_probs" for event in events.of("update"))
    return any(event["stage"] == name for event in events.of("stage"))


def _sum_seconds(events: Events, name: str, metrics: Mapping[str, float]) -> float | None:
    if name == "gradient":
        return None  # a part of the update
    durations = [event["seconds"] for event in events.of("stage") if event["stage"] == name]
    return sum(durations) if durations else metrics.get(f"timing_s/{name}")


def _group_sessions(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    sessions: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["index"]):
        sessions[row["uid"], row["session"]].append(row)
    return sessions


def _judge_rollout(stage: Stage, rows: Sequence[dict[str, Any]], completions: Sequence[dict[str, Any]]) -> None:
    last = [session[-1] for session in _group_sessions(rows).values()]
    reasons = Counter(row["stop_reason"] or "ended" for row in last)
    calls = sum(row["numbers"].get("tool_calls", 0.0) for row in last)
    scripted = sum(row["numbers"].get("external", 0.0) for row in last)
    stage.seen.append(
        f"{len(last)} episodes ({scripted:.0f} follow the solution) in {len({row['uid'] for row in last})} groups: "
        + ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    )
    observed = sum(row["response_tokens"] - row["model_tokens"] for row in rows if row["model_tokens"])
    stage.seen.append(
        f"{len(completions)} turns, {calls:.0f} tool calls, {sum(row['model_tokens'] for row in rows)} sampled and "
        f"{observed} other tokens"
    )
    void = [row for row in last if row["stop_reason"] in _VOID or not row["model_tokens"]]
    if len(void) == len(last):
        stage.fail(f"all episodes are void; the first: {void[0]['error'] or void[0]['stop_reason']}")
    elif void:
        stage.warn(f"{len(void)} of {len(last)} episodes are void; the first: {void[0]['error']}")
    elif reasons["agent_failed"] == len(last):
        stage.warn(f"the agent failed in all episodes; the first: {last[0]['error']}")


def _note_stored_episodes(stage: Stage, events: Events) -> None:
    """Adds the episodes of a step that ended before its update."""
    reasons = Counter(episode["stop_reason"] for episode in events.of("episode"))
    stage.seen.append(", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))


def _judge_reward(stage: Stage, rows: Sequence[dict[str, Any]], expected: ExpectedStep) -> None:
    sessions = _group_sessions(rows)
    paid = {key: sum(row["reward"] or 0.0 for row in session) for key, session in sessions.items()}
    if not all(map(math.isfinite, paid.values())):
        stage.fail(f"rewards are not finite, got {sorted(set(map(str, paid.values())))[:5]}")
        return
    above = sum(value > 0 for value in paid.values())
    stage.seen.append(f"{min(paid.values()):.3g} to {max(paid.values()):.3g}, {above} above 0")
    parts: dict[str, list[float]] = defaultdict(list)
    for session in sessions.values():
        for name, value in session[-1]["numbers"].items():
            if name == "acc" or name.startswith(("reward/", "weighted/")):
                parts[name].append(value)
    if parts:
        stage.seen.append("means: " + ", ".join(f"{name} {sum(v) / len(v):.3g}" for name, v in sorted(parts.items())))
    if not expected.scripted:
        return
    solved = {key: session[-1] for key, session in sessions.items() if session[-1]["numbers"].get("external")}
    if not solved:
        stage.warn("no episode that follows the solution reached the update")
    elif not any(paid[key] > 0 or row["numbers"].get("acc", 0.0) > 0 for key, row in solved.items()):
        first = next(iter(solved.values()))
        stage.fail(
            f"the environment's own solution scored 0 in {len(solved)} episodes, the first ended by "
            f"{first['stop_reason']}; check data.max_response_length and the reward"
        )


def _judge_log_probs(stage: Stage, metrics: Mapping[str, float]) -> None:
    diff = metrics.get("training/rollout_probs_diff_max")
    if diff is None:
        return
    stage.seen.append(f"largest difference of a token's probability, rollout to trainer: {diff:.1e}")
    if diff > _MAX_PROBS_DIFF:
        stage.warn(f"rollout and trainer disagree by up to {diff:.3g} about a token's probability")


def _judge_advantage(stage: Stage, rows: Sequence[dict[str, Any]], metrics: Mapping[str, float]) -> None:
    low, high = min(row["advantage_min"] for row in rows), max(row["advantage_max"] for row in rows)
    groups: dict[str, bool] = defaultdict(bool)
    for row in rows:
        groups[row["uid"]] |= bool(row["advantage_min"] or row["advantage_max"])
    signal = sum(groups.values())
    stage.seen.append(f"{signal} of {len(groups)} groups have signal; {low:.3g} to {high:.3g}")
    if metrics.get("audit/breaches"):
        stage.fail(f"the audit of masks and rewards found {metrics['audit/breaches']:.0f} breaches; the log names them")
    if not (math.isfinite(low) and math.isfinite(high)):
        stage.fail(f"advantages are not finite, got {low} to {high}")
    elif not signal:
        rewards: dict[tuple[str, bool], set[float]] = defaultdict(set)
        for (uid, _), session in _group_sessions(rows).items():
            is_guided = bool(session[-1]["numbers"].get("guided"))  # no sibling of sessions without guidance
            if any(row["model_tokens"] for row in session):  # not void
                rewards[uid, is_guided].add(round(sum(row["reward"] or 0.0 for row in session), 9))
        if any(len(values) > 1 for values in rewards.values()):
            stage.fail("rewards differ inside a group, but advantages do not")
        else:
            stage.warn("all episodes of every group have the same reward, so there is no signal")


def _judge_gradient(stage: Stage, proof: Proof | None) -> None:
    assert proof is not None
    for kind, count in sorted(proof.kinds.items()):
        stage.seen.append(f"{kind}: {count.with_gradient} of {count.tokens} tokens have a gradient")
    stage.seen.append(f"of {proof.due} sampled tokens with an advantage, {proof.due_with_gradient} have one")
    for why in proof.wrong:
        stage.fail(why)
    for why in proof.not_shown:
        stage.warn(why)


def _judge_critic(
    stage: Stage, updates: Sequence[Mapping[str, Any]], completions: Sequence[dict[str, Any]], events: Events
) -> None:
    proof = prove([{**update, "targets": None} for update in updates], completions, every_token=False)
    losses = [event["loss"] for event in events.of("update") if event["output"] == "values"]
    stage.seen.append(f"loss {sum(losses):.4g} in {len(losses)} updates")
    if not losses:
        stage.fail("the critic was not updated")
    for why in proof.wrong:
        # The value function need not have a gradient where advantages are.
        if not why.startswith("none of"):
            stage.fail(why)


def _judge_update(stage: Stage, events: Events, proof: Proof | None) -> None:
    updates = [event for event in events.of("update") if event["output"] == "log_probs"]
    norms, changed = [event["grad_norm"] for event in updates], max(event["changed"] for event in updates)
    losses = ", ".join(f"{event['loss']:.4g}" for event in updates)
    stage.seen.append(f"loss {losses}; gradient norm {', '.join(f'{norm:.4g}' for norm in norms)}")
    stage.seen.append(f"{changed} of {updates[-1]['parameters']} parameter tensors changed")
    has_signal = proof is not None and proof.rows_with_signal > 0
    if not all(map(math.isfinite, norms)):
        stage.fail(f"the gradient norm is not finite, got {norms}")
    elif has_signal and not max(norms) > 0:
        stage.fail("there is a signal, but the gradient norm is 0")
    elif has_signal and not changed:
        stage.fail("there is a gradient, but no parameter changed; check the learning rate")


def _judge_weights(stage: Stage, events: Events) -> None:
    updates = [event for event in events.of("update") if event["output"] == "log_probs"]
    sent = [event for event in events.of("server_weights") if not updates or event["time"] > updates[-1]["time"]]
    if not sent:
        stage.fail("the rollout server got no weights after the update")
        return
    stage.seen.append(f"version {sent[-1]['version']}, {len(sent[-1]['squares'])} tensors")
    ours, theirs = updates[-1]["squares"] if updates else {}, sent[-1]["squares"]
    common = [name for name in ours if name in theirs]
    differ = [name for name in common if not math.isclose(ours[name], theirs[name], rel_tol=1e-5, abs_tol=1e-12)]
    if differ:
        stage.fail(f"the rollout server's weights are not the trainer's, got other values of {differ[:3]}")
    elif common:
        stage.seen.append(f"{len(common)} tensors compared with the trainer's: the same")
