"""A finished training of `peers.py`, read from what it wrote."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _peers_processes import Side, Turn
from _peers_settings import Plan
from _report import median
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_agentic import load_run
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.log.metric_log import read_metrics

SUCCESS, _SMOOTHED_STEPS = 0.8, 3


@dataclass(frozen=True, kw_only=True)
class Step:
    """A batch of rollouts and the updates on it."""

    seconds: float
    cpu_s: float
    """Processor time."""
    success: float
    rollout_s: float
    """Of `seconds`: until all episodes have ended. The rest goes to log-probs and updates."""
    sampled_tokens: int
    observation_tokens: int
    observation_tokens_trained: int


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Tokens with the log-probs that one side gave them."""

    ids: Sequence[int]
    log_probs: Mapping[int, float]
    """By position in `ids`."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A finished training."""

    start_up: Turn
    steps: Sequence[Step]
    sampled: Sequence[Scored]
    """Log-probs of the sampler in the first step, whose policy is the SFT model; empty if the trainer has none."""
    trained: Sequence[Scored]
    """Log-probs of the trainer for the same rows; empty if it computes none before its update."""
    prompts: Collection[tuple[int, ...]]
    """Of the first step."""
    model: Path
    peak_bytes: int

    def steps_to_success(self) -> int | None:
        """Returns the number of steps until smoothed success has reached the bound."""
        for end in range(_SMOOTHED_STEPS, len(self.steps) + 1):
            window = self.steps[end - _SMOOTHED_STEPS : end]
            if sum(step.success for step in window) / len(window) >= SUCCESS:
                return end
        return None

    def typical(self, name: str) -> float:
        """Returns the median of a value of the steps, without the first, which warms up, and the last, which saves."""
        return median([getattr(step, name) for step in self.steps[1:-1]])


def read_training(plan: Plan, side: Side, start_up: Turn, *, is_ours: bool) -> Training:
    """Returns the training of a side that has ended."""
    steps, turns, rows = _our_records(plan) if is_ours else _their_records(plan)
    counts = _token_counts(rows, AutoTokenizer.from_pretrained(plan.sft), course=plan.course)
    return Training(
        start_up=start_up,
        steps=[
            Step(
                seconds=turn.seconds,
                cpu_s=turn.cpu_s,
                success=step["success"],
                rollout_s=step["rollout_s"],
                sampled_tokens=count[False, True] + count[False, False],
                observation_tokens=count[True, True] + count[True, False],
                observation_tokens_trained=count[True, True],
            )
            for turn, step, count in zip(side.turns, steps, counts, strict=True)
        ],
        sampled=[scored(turn) for turn in turns],
        trained=[scored(row) for row in rows if row["step"] == 1 and row["log_probs"]],
        prompts={tuple(row["prompt_ids"]) for row in rows if row["step"] == 1},
        model=max(plan.out.glob("checkpoints/*/actor/huggingface")) if is_ours else plan.out / "model",
        peak_bytes=side.peak_bytes,
    )


def _our_records(plan: Plan) -> list[list[dict[str, Any]]]:
    """Returns what `_peers_side.py` says that the other sides write."""
    columns = ["step", "prompt_ids", "response_ids", "response_mask", "rollout_log_probs", "old_log_probs"]
    rows = load_run(plan.log, columns).rename(columns={"response_mask": "mask", "old_log_probs": "log_probs"})
    if plan.recipe()["algorithm"]["rollout_correction"]["bypass_mode"]:  # the trainer takes those of the sampler
        rows["log_probs"] = [[]] * len(rows)
    turns = rows[rows.step == 1].assign(log_probs=rows.rollout_log_probs)
    steps = [
        {"success": metrics["episode/acc"], "rollout_s": metrics["timing_s/gen"]}
        for metrics in read_metrics(plan.log)
        if "timing_s/step" in metrics
    ]
    return [steps, turns.to_dict("records"), rows.to_dict("records")]


def _their_records(plan: Plan) -> list[list[dict[str, Any]]]:
    names = ("steps", "turns", "rows")
    return [[record for _, record in read_json_lines(plan.out / f"{name}.jsonl")] for name in names]


def _token_counts(
    rows: Sequence[Mapping[str, Any]], tokenizer: Any, *, course: Course
) -> list[Counter[tuple[bool, bool]]]:
    """Returns for each step the numbers of tokens by (is an observation, is trained)."""
    ends, header = [tokenizer.eos_token_id], tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    counts: dict[int, Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for row in rows:
        if course.protocol == "chat":
            observed = is_observation(row["response_ids"], ends=ends, header=header)
        else:
            observed = is_output(row["response_ids"], decode=tokenizer.decode)
        counts[row["step"]].update(zip(observed, map(bool, row["mask"]), strict=True))
    return [counts[step] for step in sorted(counts)]


def is_observation(ids: Sequence[int], *, ends: Sequence[int], header: Sequence[int]) -> list[bool]:
    """Returns which tokens of a response the policy did not sample, whatever a mask says: those after the end of a
    turn, up to the header of the next one."""
    inside, found = False, []
    for at, token in enumerate(ids):
        found.append(inside)
        ends_here = list(ids[max(0, at + 1 - len(header)) : at + 1]) == list(header)
        inside = not ends_here if inside else token in ends
    return found


def is_output(ids: Sequence[int], *, decode: Callable[[Sequence[int]], str]) -> list[bool]:
    """Returns which tokens are an output of a call, the tags included, whatever a mask says.

    It follows the end of a call at once, where sampling has stopped. A policy that imitates its tags does so elsewhere.
    """
    ends = [len(decode(ids[: at + 1])) for at in range(len(ids))]
    spans = [match.span() for match in re.finditer(r"(?<=</python>)<output>.*?(?:</output>|$)", decode(ids), re.DOTALL)]
    return [any(start < place <= stop for start, stop in spans) for place in ends]


def scored(row: Mapping[str, Any]) -> Scored:
    """Returns the log-probs of the trained tokens of a row."""
    prompt, log_probs = row["prompt_ids"], row["log_probs"]
    kept = {len(prompt) + at: log_probs[at] for at, is_trained in enumerate(row["mask"]) if is_trained}
    return Scored(ids=[*prompt, *row["response_ids"]], log_probs=kept)


def max_difference(model: Path, rows: Sequence[Scored]) -> float:
    """Returns the largest difference of log-probs to a forward pass of Hugging Face, row by row without padding."""
    policy, worst = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(), 0.0
    with torch.no_grad():
        for row in rows:
            log_probs_TV = policy(torch.tensor([row.ids])).logits[0].log_softmax(-1)
            for at, log_prob in row.log_probs.items():
                worst = max(worst, abs(float(log_probs_TV[at - 1, row.ids[at]]) - log_prob))
    return worst
