"""Patches verl: logs rows of its own agent loops, with verl's columns and the turns from the mask.

Wraps `AgentLoopWorker._run_agent_loop` and `AgentLoopOutput.as_dict`.

Their tool calls, durations and results are only known as text.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker

from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.secrets import Decode, own_secrets, withhold
from verl_agentic.log.writer import log_writer
from verl_agentic.rewards.verl_result import read_score, row_numbers
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.rollout.rollout_features import log_options


@dataclass(kw_only=True)
class _Session:
    """The session of this task."""

    columns: Mapping[str, Any]
    options: LogOptions
    decode: Decode
    num_rows: int = 0


_session: ContextVar[_Session | None] = ContextVar("foreign_session", default=None)


def place_columns(kwargs: Mapping[str, Any], *, is_validation: bool) -> dict[str, Any]:
    """Returns the columns that identify a row's prompt and session.

    Args:
        kwargs: verl's arguments of an agent loop.
        is_validation: whether it is a validation session.
    """
    extra = kwargs.get("extra_info") or {}
    uid = kwargs.get("uid") or extra.get("task_id") or extra.get("index") or ""
    return {
        "uid": str(uid),
        "session": int(kwargs.get("session_id") or 0),
        "step": int(kwargs.get("global_steps") or 0),
        "split": "val" if is_validation else "train",
    }


def is_greedy(kwargs: Mapping[str, Any], *, is_validation: bool) -> bool:
    """Returns whether a session is an untrained baseline; arguments as above."""
    session = kwargs.get(GREEDY_SESSION)
    return not is_validation and session is not None and int(session) == kwargs.get("session_id")


@wrap(AgentLoopWorker, "_run_agent_loop")
async def _run_in_session(
    run: Any, /, self: Any, sampling_params: Any, trajectory: Mapping[str, Any], **kwargs: Any
) -> Any:
    options = _options_of(self)
    if options.dir is None:
        return await run(self, sampling_params, trajectory, **kwargs)
    columns = {
        **place_columns(kwargs, is_validation=bool(trajectory["validate"])),
        "role": "greedy" if is_greedy(kwargs, is_validation=bool(trajectory["validate"])) else "policy",
        "loop": str(kwargs.get("agent_name", "")),
        "data_source": str(kwargs.get("data_source", "")),
        "temperature": float(sampling_params.get("temperature") or 0.0),
    }
    decode = functools.partial(self.tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    token = _session.set(_Session(columns=columns, options=options, decode=decode))
    try:
        return await run(self, sampling_params, trajectory, **kwargs)
    finally:
        _session.reset(token)


def _options_of(worker: Any) -> LogOptions:
    state = state_of(worker)
    if state.log_options is None:  # read once: it takes as long as a small episode
        state.log_options = log_options(worker.config)
    return state.log_options


@wrap(AgentLoopOutput, "as_dict")
def _log_row(as_dict: Any, self: Any) -> dict[str, Any]:
    columns, session = as_dict(self), _session.get()
    # verl's loops return exactly this class, or one derived for scoring (`is_foreign`). Other classes, such as
    # env_agent's, log themselves.
    is_foreign = getattr(type(self), "is_foreign", type(self) is AgentLoopOutput)
    if session is not None and is_foreign:
        index, ended = session.num_rows, time.time()
        session.num_rows += 1
        writer = log_writer("trajectories", session.options)
        writer.append(lambda: [_make_log_record(self, session, index, ended)])
    return columns


def _make_log_record(output: AgentLoopOutput, session: _Session, index: int, ended: float) -> dict[str, Any]:
    mask, extra = output.response_mask, output.extra_fields
    numbers = {}
    if output.reward_score is not None:
        numbers = row_numbers(read_score(extra.get("reward_extra_info") or {}, total=output.reward_score))
    runs = [(bool(trained), len(list(tokens))) for trained, tokens in groupby(mask)]
    ends = np.cumsum([length for _, length in runs]).tolist()
    segments, turn = [], -1
    for (is_model, length), end in zip(runs, ends, strict=True):
        turn = max(0, turn + is_model)
        segments.append({"start": end - length, "end": end, "kind": "model" if is_model else "tool", "turn": turn})
    prompt_ids, response_ids = output.prompt_ids, output.response_ids
    texts = [session.decode(response_ids[s["start"] : s["end"]]) for s in segments]
    if secrets := own_secrets():
        prompt_ids = withhold(prompt_ids, [(0, len(prompt_ids))], decode=session.decode, secrets=secrets)
        spans = [(s["start"], s["end"]) for s in segments]
        response_ids = withhold(response_ids, spans, decode=session.decode, secrets=secrets)
    rewards = [0.0] * len(mask)
    if output.reward_score is not None and rewards:
        rewards[-1] = float(output.reward_score)  # where verl puts it
    return {
        **session.columns,
        "index": index,
        "place": "last",
        "time": ended,
        "weights_min": int(extra.get("min_global_steps") or 0),
        "weights_max": int(extra.get("max_global_steps") or 0),
        "reward": output.reward_score,
        "acc": numbers.get("acc", output.reward_score),
        "num_turns": turn + 1,
        "num_model_tokens": int(sum(mask)),
        "num_response_tokens": len(mask),
        "numbers": numbers,
        "prompt_ids": prompt_ids,
        "response_ids": response_ids,
        "response_mask": mask,
        "turn_ids": [s["turn"] for s in segments for _ in range(s["end"] - s["start"])],
        "rollout_log_probs": output.response_logprobs or [],
        "token_rewards": rewards,
        "segments": segments,
        "prompt": [{"role": "user", "content": session.decode(output.prompt_ids), "name": "", "calls": ""}],
        "turns": _collect_turns(segments, texts),
    }


def _collect_turns(segments: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    turns: dict[int, dict[str, Any]] = {}
    for segment, text in zip(segments, texts, strict=True):
        number = segment["turn"]
        turn = turns.setdefault(
            number, {"index": number, "text": "", "content": "", "calls": [], "observations": [], "num_tokens": 0}
        )
        if segment["kind"] == "model":
            turn |= {"text": text, "content": text, "num_tokens": segment["end"] - segment["start"]}
        else:
            turn["observations"].append(text)
    return list(turns.values())
