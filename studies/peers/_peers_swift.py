"""The ms-swift side of `peers.py`, in an environment of its own: `python _peers_swift.py PLAN.json`.

See `_peers_side.py` for what it writes. ms-swift has no tools in its GRPO: a scheduler reads the calls, runs them and
writes the next message of the user. It renders chats with templates of its own. `chatml` gives the tokens of ours if
the line about the tool is the system message.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from _peers_side import TaskEnvironment, TrainingRecord
from swift.pipelines import rlhf_main  # pyright: ignore[reportMissingImports]
from swift.rewards import ORM, orms  # pyright: ignore[reportMissingImports]
from swift.rlhf_trainers import grpo_trainer  # pyright: ignore[reportMissingImports]
from swift.rollout import MultiTurnScheduler, multi_turns  # pyright: ignore[reportMissingImports]

from verl_agentic import EnvRow, read_rows
from verl_agentic.tools.python import SCHEMA

_CALL = re.compile(r"<tool_call>\s*(.+?)\s*</tool_call>", re.DOTALL)


def main(plan: dict[str, Any]) -> None:
    """Trains as planned."""
    out, rows = Path(plan["out"]), read_rows(Path(plan["rows"]))
    data = out / "train.jsonl"
    data.write_text("".join(json.dumps(_example(row)) + "\n" for row in rows))
    environment = TaskEnvironment(plan["env"], rows[0])
    record = TrainingRecord(out)
    multi_turns["python_tool"] = _scheduler(environment)
    orms["outcome"] = _outcome(environment)
    _measure(record)
    own = {
        "model": plan["model"],
        "dataset": str(data),
        "output_dir": str(out / "trainer"),
        "multi_turn_scheduler": "python_tool",
        "reward_funcs": "outcome",
    }
    options = {**own, **plan["config"]}
    rlhf_main([part for name, value in options.items() for part in (f"--{name}", _option(value))])
    (checkpoint,) = (out / "trainer").glob("*/checkpoint-*")
    checkpoint.rename(out / "model")


def _scheduler(environment: TaskEnvironment) -> type:
    class PythonTool(MultiTurnScheduler):
        """Runs calls of the tool between two turns."""

        def check_finished(self, infer_request: Any, response_choice: Any, current_turn: int) -> bool:
            is_last = super().check_finished(infer_request, response_choice, current_turn)
            return is_last or not _CALL.search(response_choice.message.content)

        def step(self, infer_request: Any, response_choice: Any, current_turn: int) -> dict[str, Any]:
            found = _CALL.search(response_choice.message.content)
            assert found is not None
            try:
                call = json.loads(found[1])
                result = _wait(environment.call(call["name"], call["arguments"]))
            except (ValueError, KeyError, TypeError) as error:
                result = f"Error: {error}"
            text = f"<tool_response>\n{result}\n</tool_response>"
            infer_request.messages.append({"role": "user", "content": text})
            return {"infer_request": infer_request}

    return PythonTool


def _outcome(environment: TaskEnvironment) -> type:
    class Outcome(ORM):
        """Scores as the environment does."""

        def __call__(self, completions: Any, ground_truth: Any, finish_reason: Any, **_: Any) -> list[float]:
            return [
                _wait(environment.outcome(text if reason == "stop" and not _CALL.search(text) else None, truth))
                for text, truth, reason in zip(completions, ground_truth, finish_reason, strict=True)
            ]

    return Outcome


def _measure(record: TrainingRecord) -> None:
    """Makes every trainer of this process write a record; it changes nothing else."""
    trainer = grpo_trainer.GRPOTrainer
    roll_out, postprocess = trainer._rollout_samples, trainer._postprocess_batch

    def rollout_samples(self: Any, inputs: Any) -> Any:
        record.begin_step()
        samples = roll_out(self, inputs)
        record.end_rollouts()
        return samples

    def postprocess_batch(self: Any, samples: Any, batches: Any) -> None:
        postprocess(self, samples, batches)
        success = float(self._rewards_per_func[:, 0].mean())
        record.add_rows(success, [row for batch in batches for row in _rows(batch)])

    trainer._rollout_samples, trainer._postprocess_batch = rollout_samples, postprocess_batch


def _rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows without padding; the first trained token is the first of the response."""
    inputs, outputs = batch["model_inputs"], batch["grpo_batch"]
    rows = []
    for i in range(len(inputs["input_ids"])):
        width = outputs.completion_mask.shape[1]
        present = inputs["attention_mask"][i].bool()
        ids, in_tail = inputs["input_ids"][i], present[-width:]
        mask, log_probs = outputs.completion_mask[i][in_tail].int().tolist(), outputs.old_per_token_logps[i][in_tail]
        tail, first = ids[-width:][in_tail].tolist(), mask.index(1)
        rows.append(
            {
                "prompt_ids": [*ids[:-width][present[:-width]].tolist(), *tail[:first]],
                "response_ids": tail[first:],
                "mask": mask[first:],
                "log_probs": log_probs.tolist()[first:],
            }
        )
    return rows


def _example(row: EnvRow) -> dict[str, Any]:
    function = SCHEMA["function"]
    arguments = ", ".join(function["parameters"]["properties"])
    system = {"role": "system", "content": f"{function['name']}({arguments}): {function['description']}"}
    prompt = [{"role": message.role, "content": message.content} for message in row.prompt]
    return {"messages": [system, *prompt], "ground_truth": row.ground_truth}


def _option(value: Any) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else json.dumps(value) if isinstance(value, dict) else str(value)
    )


_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, daemon=True).start()


def _wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in the loop of the sandboxes."""
    return asyncio.run_coroutine_threadsafe(coroutine, _LOOP).result()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
