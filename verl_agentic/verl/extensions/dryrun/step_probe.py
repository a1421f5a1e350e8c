"""Patches verl: a dry run watches the processes of `main_ppo`, where VERL_USE_EXTERNAL_MODULES loads this module.

Wraps `PPOTrainer.init`, `_run_agent_loop` and `_compute_score` of `AgentLoopWorker`, `LLMServerClient.generate`, and
the columns that rows of ours are stored as.

It changes two things only. Turns of scripted sessions get the model's log-probs instead of 0, as if the policy had
written them. So a dry run with a rollout correction may have such sessions. verl imports this module in every process
before its plugins, so it must not import verl at the top.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import RAY_IS_SLOW
from verl_agentic.base.places.error_places import locate_error, locate_trace
from verl_agentic.checks.dryrun.events import FOLDER_VARIABLE, MODEL_VARIABLE, TEMPERATURE_VARIABLE
from verl_agentic.verl.batches.row_store import split_key, unwrap
from verl_agentic.verl.import_hooks import when_imported
from verl_agentic.verl.patching import wrap

_STAGE_OF = {
    "_compute_reward_colocate": "reward",
    "_compute_old_log_prob": "log_probs",
    "_compute_ref_log_prob": "log_probs",
    "_compute_values": "log_probs",
    "_compute_advantage": "advantage",
    "_update_critic": "critic",
    "_update_actor": "update",
    "on_step_end": "weights",
}
_FIELDS = ["responses", "response_mask", "rm_scores", "advantages", "extra_fields"]
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_TRACE_CHARS = 8_000


def write(event: str, **fields: Any) -> None:
    """Appends an event of this process."""
    _append_record("events", {"event": event, "time": time.time(), "pid": os.getpid(), **fields})


def _append_record(name: str, record: dict[str, Any]) -> None:
    path = Path(os.environ[FOLDER_VARIABLE]) / f"{name}-{os.getpid()}.jsonl"
    # A single write to a file opened for appending, so that a reader never sees half a line.
    with path.open("ab") as file:
        file.write(json.dumps(record).encode() + b"\n")


def root_cause(error: BaseException) -> BaseException:
    """Returns the exception of a Ray worker without Ray's wrappers."""
    inner = getattr(error, "cause", None)
    while isinstance(inner, BaseException) and inner is not error:
        error, inner = inner, getattr(inner, "cause", None)
    return error


def write_error(stage: str, error: BaseException) -> None:
    """Appends an exception with its message and origin."""
    cause = root_cause(error)
    trace = _COLOURS.sub("", "".join(traceback.format_exception(error)))[-_MAX_TRACE_CHARS:]
    frames = traceback.extract_tb(cause.__traceback__)
    innermost = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    origin = locate_error(cause) or locate_trace(trace) or innermost
    message = _COLOURS.sub("", str(cause))
    write("error", stage=stage, type=type(cause).__name__, message=message, where=origin, trace=trace)


def _wrap_stage(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.time()
        write("begin", stage=stage)
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            write_error(stage, error)
            raise
        write("stage", stage=stage, seconds=time.time() - started)
        return result

    return call


# The trainer's process.


def _watch_trainer() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    @wrap(PPOTrainer, "init")
    def init_staged(init: Any, self: Any) -> None:
        for name, stage in _STAGE_OF.items():
            function = getattr(self, name)
            if name == "_compute_advantage":
                function = _telling_rows(function)
            setattr(self, name, _wrap_stage(stage, function))
        self.replay_buffer.sample = _wrap_stage("rollout", self.replay_buffer.sample)
        _wrap_stage("start", functools.partial(init, self))()


def _telling_rows(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def compute_advantage(*args: Any, **kwargs: Any) -> Any:
        batch = compute(*args, **kwargs)
        import transfer_queue as tq

        stored: Any = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
        is_padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
        write("rows", rows=[_summarise_row(key, stored, p) for p, key in enumerate(batch.keys) if not is_padding[p]])
        return batch

    return compute_advantage


def _summarise_row(key: str, stored: Any, place: int) -> dict[str, Any]:
    uid, session, index = split_key(key)
    extra = unwrap(stored["extra_fields"][place] if "extra_fields" in stored else {}) or {}
    mask = stored["response_mask"][place].bool()
    advantages = stored["advantages"][place][: len(mask)][mask]
    return {
        "uid": uid,
        "session": int(session),
        "index": index,
        "response_tokens": len(stored["responses"][place]),
        "model_tokens": int(mask.sum()),
        "reward": float(stored["rm_scores"][place].sum()) if "rm_scores" in stored else None,
        "advantage_min": float(advantages.min()) if len(advantages) else 0.0,
        "advantage_max": float(advantages.max()) if len(advantages) else 0.0,
        "stop_reason": extra.get("stop_reason") or "",
        "error": extra.get("error") or "",
        "numbers": {
            name: float(value)
            for name, value in {
                **(extra.get("reward_extra_info") or {}),
                **{f"reward/{part}": paid for part, paid in (extra.get("reward_parts") or {}).items()},
            }.items()
            if isinstance(value, (bool, int, float))
        },
    }


def _watch_uncaught() -> None:
    """Writes the exception that ends verl's main process."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, Exception) and RAY_IS_SLOW not in str(error):  # it is run once more
            write_error("", error)
        before(kind, error, trace)

    sys.excepthook = hook


# The rollout processes.


def _watch_loops() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    @wrap(AgentLoopWorker, "_run_agent_loop")
    async def run_aloud(run: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await _failing_aloud("rollout", run(*args, **kwargs))

    @wrap(AgentLoopWorker, "_compute_score")
    async def score_aloud(compute_score: Any, *args: Any, **kwargs: Any) -> Any:
        return await _failing_aloud("reward", compute_score(*args, **kwargs))


def _watch_rows() -> None:
    from verl_agentic.verl.rollout.episode_rows import EnvAgentOutput

    @wrap(EnvAgentOutput, "as_dict")
    def as_dict_noted(as_dict: Any, self: Any) -> dict[str, Any]:
        columns = as_dict(self)
        if self.place == "last":
            extra = columns["extra_fields"]
            is_void = not bool(columns["response_mask"].any())
            write("episode", is_void=is_void, stop_reason=extra["stop_reason"], error=extra["error"])
        return columns


async def _failing_aloud(stage: str, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as error:  # verl logs it and trains on the rest
        write_error(stage, error)
        raise


def _watch_servers() -> None:
    from verl.workers.rollout.llm_server import LLMServerClient

    @wrap(LLMServerClient, "generate")
    async def generate_logged(generate: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        output = await generate(self, *args, **kwargs)
        _append_record("completions", _make_turn_record(kwargs["prompt_ids"], output.token_ids, scripted=False))
        return output


def _watch_scripts() -> None:
    from verl_agentic.episode.policies.policy import ScriptedPolicy

    @wrap(ScriptedPolicy, "generate")
    async def generate_scored(generate: Any, self: Any, prompt_ids: Sequence[int], **kwargs: Any) -> Any:
        completion = await generate(self, prompt_ids, **kwargs)
        _append_record("completions", _make_turn_record(prompt_ids, completion.token_ids, scripted=True))
        log_probs = await asyncio.to_thread(_log_probs, list(prompt_ids), list(completion.token_ids))
        return replace(completion, log_probs=log_probs)


def _make_turn_record(prompt_ids: Sequence[int], token_ids: Sequence[int], *, scripted: bool) -> dict[str, Any]:
    return {"prompt": [int(i) for i in prompt_ids], "ids": [int(i) for i in token_ids], "scripted": scripted}


_model_lock = threading.Lock()


@functools.cache
def _load_model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        os.environ[MODEL_VARIABLE], dtype=torch.float32, attn_implementation="sdpa"
    ).eval()


def _log_probs(prompt_ids: list[int], token_ids: list[int]) -> list[float]:
    """Returns the log-probs of a script's tokens under the model before the step."""
    import torch

    # Sessions run concurrently, and transformers cannot load one model in two threads.
    with _model_lock, torch.no_grad():
        logits = _load_model()(torch.tensor([prompt_ids + token_ids])).logits[0, len(prompt_ids) - 1 : -1]
    temperature = float(os.environ[TEMPERATURE_VARIABLE])
    chosen = (logits.float() / temperature).log_softmax(-1).gather(1, torch.tensor(token_ids)[:, None])
    return chosen[:, 0].tolist()


def _allow_corrections() -> None:
    from verl_agentic.verl.rollout import external_sessions

    external_sessions._CORRECTIONS = ()


# The rollout server, and the trainer's engines.


def _watch_weights() -> None:
    from verl_agentic.cpu.inference.inference_engine import InferenceEngine

    @wrap(InferenceEngine, "update_weights")
    async def update_logged(update_weights: Any, self: Any, weights: Any, *, version: int) -> None:
        weights = [(name, tensor) for name, tensor in weights]
        await update_weights(self, weights, version=version)
        squares = {name: float(tensor.detach().double().square().sum()) for name, tensor in weights}
        write("server_weights", version=version, squares=squares)


def _watch_engines() -> None:
    from verl_agentic.verl.extensions.dryrun import gradient_probe

    gradient_probe.watch(write)


if os.environ.get(FOLDER_VARIABLE):
    when_imported("verl.trainer.ppo.v1.trainer_base", _watch_trainer)
    when_imported("verl.experimental.agent_loop", _watch_loops)
    when_imported("verl_agentic.verl.rollout.episode_rows", _watch_rows)
    when_imported("verl.workers.rollout.llm_server", _watch_servers)
    when_imported("verl_agentic.episode.policies.policy", _watch_scripts)
    when_imported("verl_agentic.verl.rollout.external_sessions", _allow_corrections)
    when_imported("verl_agentic.cpu.inference.inference_engine", _watch_weights)
    when_imported("verl.workers.engine.base", _watch_engines)
    if any("main_ppo" in argument for argument in (sys.argv[0], *getattr(sys, "orig_argv", ()))):
        _watch_uncaught()
