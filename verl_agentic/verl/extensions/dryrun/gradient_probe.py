"""Patches verl: a dry run measures in `BaseEngine.train_batch` the gradient of the loss at every token, and its update.

Two independent checks show that a token is not trained. By gradient: a hook on the loss inputs (log-probs, entropies,
values) records the derivative at every position. By value: the loss is recomputed with other target ids at all tokens
that the policy did not write. It must not change, and it must change if the policy's own tokens get other targets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from verl_agentic.checks.dryrun.events import FOLDER_VARIABLE, read_completions, sampled_flags
from verl_agentic.verl.batches.row_store import unwrap
from verl_agentic.verl.patching import wrap

Write = Callable[..., None]


def watch(write: Write) -> None:
    """Makes verl's engines report each update."""
    from verl.workers.engine.base import BaseEngine

    from verl_agentic.verl.engine.worker_columns import keep_records

    keep_records("extra_fields")  # the kinds of a row's tokens

    @wrap(BaseEngine, "train_batch")
    def train_watched(train_batch: Any, self: Any, data: Any, loss_function: Any) -> Any:
        completions = read_completions(Path(os.environ[FOLDER_VARIABLE]))
        before = _copy_parameters(self.module)
        others = _loss_with_other_targets(self, data, loss_function, completions)
        watched = _Watched(loss_function)
        output = train_batch(self, data, watched)
        write("gradient", rows=[row for call in watched.calls for row in call.rows()], targets=others)
        grad_norm = float(output["metrics"]["grad_norm"])
        after = _copy_parameters(self.module)
        changed = [name for name in after if not torch.equal(before[name], after[name])]
        write(
            "update",
            output=watched.main,
            loss=watched.total,
            grad_norm=grad_norm,
            parameters=len(after),
            changed=len(changed),
            squares={name: float(value.double().square().sum()) for name, value in after.items()},
        )
        return output


class _Watched:
    """A loss that records the gradients of its inputs."""

    def __init__(self, loss_function: Any) -> None:
        self._loss_function = loss_function
        self.calls: list[_Call] = []
        self.total = 0.0
        self.main = ""
        """The trained output: log_probs of a policy, values of a critic."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call(kwargs["data"])
        kwargs["model_output"] = {name: call.hooked(name, value) for name, value in kwargs["model_output"].items()}
        self.main = "values" if "values" in kwargs["model_output"] else "log_probs"
        self.calls.append(call)
        loss, metrics = self._loss_function(*args, **kwargs)
        self.total += float(loss.detach())
        return loss, metrics


class _Call:
    """One micro-batch."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._gradients: dict[str, torch.Tensor] = {}
        self._outputs: list[str] = []

    def hooked(self, name: str, value: Any) -> Any:
        """Returns an output of the model with a gradient hook."""
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return value
        nested: Any = value
        flat = nested.values() if value.is_nested else value
        if flat.shape[:1] != self._data["input_ids"].values().shape[:1]:
            return value
        self._outputs.append(name)

        def keep(gradient: torch.Tensor) -> None:
            per_token = gradient.detach().reshape(len(gradient), -1).abs().sum(1)
            self._gradients[name] = per_token.double()

        if not value.is_nested:
            value.register_hook(keep)
            return value
        flat.register_hook(keep)
        return torch.nested.nested_tensor_from_jagged(flat, offsets=nested.offsets())

    def rows(self) -> list[dict[str, Any]]:
        """Returns ids, mask, advantages and the absolute gradient of every token of every row."""
        data, rows = self._data, []
        offsets = data["input_ids"].offsets().tolist()
        for place, ids in enumerate(data["input_ids"].unbind()):
            start, end, num_prompt = offsets[place], offsets[place + 1], len(data["prompts"][place])
            gradients = {name: self._slice_gradient(name, start, end) for name in self._outputs}
            rows.append(
                {
                    "ids": ids.tolist(),
                    "num_prompt": num_prompt,
                    "mask": data["response_mask"][place].long().tolist(),
                    "advantages": _read_floats(data, "advantages", place),
                    "segments": _read_extra(data, place).get("segments") or [],
                    "stop_reason": _read_extra(data, place).get("stop_reason") or "",
                    # The output at a position belongs to the next token.
                    "gradients": {name: values[num_prompt - 1 : -1] for name, values in gradients.items()},
                    "elsewhere": {
                        name: max([*values[: num_prompt - 1], values[-1]], default=0.0)
                        for name, values in gradients.items()
                    },
                }
            )
        return rows

    def _slice_gradient(self, name: str, start: int, end: int) -> list[float]:
        gradient = self._gradients.get(name)
        return [0.0] * (end - start) if gradient is None else gradient[start:end].tolist()


def _read_floats(data: Any, name: str, place: int) -> list[float]:
    return data[name][place].double().tolist() if name in data else []


def _read_extra(data: Any, place: int) -> dict[str, Any]:
    extra = data["extra_fields"][place] if "extra_fields" in data else {}
    return unwrap(extra) or {}


def _copy_parameters(module: Any) -> dict[str, torch.Tensor]:
    named = {}
    for name, parameter in module.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        named[name] = local.detach().clone()
    return named


def _loss_with_other_targets(
    engine: Any, data: Any, loss_function: Any, completions: list[dict[str, Any]]
) -> dict[str, float] | None:
    """Returns the loss: unchanged, with other targets on foreign tokens, and on the policy's tokens."""
    if not hasattr(engine, "prepare_model_inputs"):
        return None

    def loss_with(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> float:
        original, total = engine.prepare_model_inputs, [0.0]

        def prepare(micro_batch: Any) -> Any:
            inputs, arguments = original(micro_batch=micro_batch)
            targets = arguments["input_ids_rmpad_rolled"]
            arguments["input_ids_rmpad_rolled"] = change(targets, _target_flags(micro_batch, completions))
            return inputs, arguments

        def loss(*args: Any, **kwargs: Any) -> Any:
            value, metrics = loss_function(*args, **kwargs)
            total[0] += float(value)
            return value, metrics

        engine.prepare_model_inputs = prepare
        try:
            with torch.no_grad():
                engine.forward_backward_batch(data, loss, forward_only=True)
        finally:
            del engine.prepare_model_inputs
        return total[0]

    high = int(data["input_ids"].values().max()) + 1
    return {
        "as_is": loss_with(lambda targets, flags: targets),
        "not_written": loss_with(lambda targets, flags: torch.where(flags, targets, (targets + 1) % high)),
        "written": loss_with(lambda targets, flags: torch.where(flags, (targets + 1) % high, targets)),
    }


def _target_flags(micro_batch: Any, completions: list[dict[str, Any]]) -> torch.Tensor:
    """Returns for every target whether the policy wrote it."""
    flags: list[bool] = []
    for ids in micro_batch["input_ids"].unbind():
        flags += sampled_flags(ids.tolist(), completions)
    return torch.tensor(flags).roll(-1)
