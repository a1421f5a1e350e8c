"""The TRL side of `peers.py`, in an environment of its own: `python _peers_trl.py PLAN.json`.

See `_peers_side.py` for what it writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _peers_side import TaskEnvironment, TrainingRecord
from _peers_trl_rollouts import CourseRollouts, row_prompt
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]
from trl.chat_template_utils import qwen3_schema  # pyright: ignore[reportMissingImports]

from verl_agentic import EnvRow, read_rows
from verl_agentic.cpu.quickstart.course import load_course


def main(plan: dict[str, Any]) -> None:
    """Trains as planned."""
    out, rows = Path(plan["out"]), read_rows(Path(plan["rows"]))
    course = load_course(plan["recipe"])
    tokenizer = AutoTokenizer.from_pretrained(plan["model"], padding_side="left")
    if course.protocol == "chat":
        episodes = _tool_calls(tokenizer, TaskEnvironment(course.env, rows[0]))
    else:
        episodes = {"rollout_func": CourseRollouts(course, plan["model"], rows), "reward_funcs": [_scored_outcome]}
    trainer = MeasuredTrainer(
        model=plan["model"],
        args=GRPOConfig(output_dir=str(out / "trainer"), **plan["config"]),
        train_dataset=Dataset.from_list([_example(row) for row in rows]),
        processing_class=tokenizer,
        **episodes,
    )
    trainer.measure(TrainingRecord(out), has_logits=course.protocol == "chat")
    trainer.train()
    trainer.save_model(str(out / "model"))
    tokenizer.save_pretrained(out / "model")


def _tool_calls(tokenizer: Any, environment: TaskEnvironment) -> dict[str, Any]:
    """Returns the arguments for TRL's own tool calls."""
    # TRL knows the schema of a template that it knows by heart; a user sets it for every other template.
    tokenizer.response_schema = qwen3_schema
    return {"tools": [_tool(environment)], "reward_funcs": [_outcome(environment, tokenizer.eos_token_id)]}


def _tool(environment: TaskEnvironment) -> Callable[..., Any]:
    async def python(code: str) -> str:
        """Runs Python code and returns what it prints.

        Args:
            code: The code to run.
        """
        return await environment.call("python", {"code": code})

    return python


def _outcome(environment: TaskEnvironment, eos: int) -> Callable[..., Any]:
    async def outcome(*, completions: Any, completion_ids: Any, ground_truth: Any, **_: Any) -> list[float]:
        scores = []
        for messages, ids, truth in zip(completions, completion_ids, ground_truth, strict=True):
            last = messages[-1]
            has_answered = last["role"] == "assistant" and not last.get("tool_calls") and ids[-1] == eos
            scores.append(await environment.outcome(last["content"] if has_answered else None, truth))
        return scores

    return outcome


def _scored_outcome(*, outcome: list[float], **_: Any) -> list[float]:
    return outcome


class MeasuredTrainer(GRPOTrainer):
    """TRL's trainer; reads what passes, and changes nothing."""

    def measure(self, record: TrainingRecord, *, has_logits: bool) -> None:
        """Begins to write a record; `has_logits`: of the sampler, in the first step."""
        self.record, self._has_logits = record, has_logits
        self.turn_options: dict[str, Any] = {}
        self._logits: Sequence[torch.Tensor] = ()
        generate = self.model.generate
        if not has_logits:
            self.model.generate = lambda *args, **kwargs: generate(*args, **kwargs, **self.turn_options)
            return

        def generate_with_logits(*args: Any, **kwargs: Any) -> Any:
            output = generate(*args, **kwargs, return_dict_in_generate=True, output_logits=True)
            self._logits = output.logits
            return output.sequences

        self.model.generate = generate_with_logits  # for the first step

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        completion_ids, log_probs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        if self._has_logits and self.record.step == 1:
            sampled = zip(prompt_ids, completion_ids, _log_probs_of(completion_ids, self._logits), strict=True)
            self.record.add_turns(
                {"prompt_ids": list(context), "response_ids": ids, "mask": [1] * len(ids), "log_probs": log_probs}
                for context, ids, log_probs in sampled
            )
        return completion_ids, log_probs

    def _generate(self, prompts: Any) -> Any:
        generated = super()._generate(prompts)
        self.record.end_rollouts()
        return generated

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.record.begin_step()
        batch = super()._generate_and_score_completions(inputs)
        self.record.add_rows(self._metrics["train"]["reward"][-1], _rows(batch))
        if self._has_logits and self.record.step == 1:
            del self.model.generate
        return batch


def _rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows without padding."""
    rows = []
    for i in range(len(batch["prompt_ids"])):
        prompt, present = batch["prompt_mask"][i].bool(), batch["completion_mask"][i].bool()
        of_response = {"response_ids": "completion_ids", "mask": "tool_mask", "log_probs": "old_per_token_logps"}
        # A step of one update has no old log-probs.
        columns = {
            name: batch[column][i][present].tolist() if column in batch else [] for name, column in of_response.items()
        }
        rows.append({"prompt_ids": batch["prompt_ids"][i][prompt].tolist(), **columns})
    return rows


def _log_probs_of(sampled: Sequence[Sequence[int]], logits: Sequence[torch.Tensor]) -> list[list[float]]:
    log_probs_TBV = torch.stack([step.float() for step in logits]).log_softmax(-1)
    return [log_probs_TBV[torch.arange(len(ids)), row, torch.tensor(ids)].tolist() for row, ids in enumerate(sampled)]


def _example(row: EnvRow) -> dict[str, Any]:
    return {"prompt": row_prompt(row), "ground_truth": row.ground_truth}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
