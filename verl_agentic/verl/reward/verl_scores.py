"""Patches verl: `AgentLoopWorker._compute_score`, so that our rewards score episodes of any agent loop.

A reward worker gets the tokens of a response without the mask of sampled tokens. The agent loop's worker has the mask,
so it makes the same record as `env_agent`, and the row takes the score in the same way. All reward functions get the
ground truth and `extra_info` of the row as they were written, not the JSON text of the columns.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.experimental.agent_loop.tool_parser import ToolParser

from verl_agentic.log.files.parquet import decoded_columns
from verl_agentic.rewards.answers.response_samples import Task, sample_of_tokens, to_messages, to_spans
from verl_agentic.rewards.verl_result import EPISODE_NUMBERS, SAMPLE, Scored
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.rollout.episode_rows import EnvAgentOutput
from verl_agentic.verl.rollout.verl_rows import place_columns

_OURS = "pkg:..verl_agentic."


class ForeignOutput(EnvAgentOutput):
    """A row of another agent loop, with rewards in our layout."""

    is_foreign: ClassVar[bool] = True


def scores_foreign_rows(config: Any) -> bool:
    """Returns whether a rubric or reward function of this package scores the run."""
    function = OmegaConf.select(config, "reward.custom_reward_function.path") or ""
    manager = OmegaConf.select(config, "reward.reward_manager.name")
    return manager == "rubric" or str(function).replace("/", ".").startswith(_OURS)


@wrap(AgentLoopWorker, "_compute_score")
async def _score_verl_rows(
    compute_score: Any, self: Any, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]
) -> None:
    kwargs = decoded_columns(kwargs)
    last, workers = outputs[-1], self.reward_loop_worker_handles
    is_foreign = type(last) is AgentLoopOutput and last.reward_score is None
    if not (is_foreign and workers is not None and scores_foreign_rows(self.config)):
        return await compute_score(self, outputs, kwargs)
    verl_outputs = list(outputs)
    record = await _make_sample_record(self, last, kwargs)
    outputs[:] = [_to_row(output, record=record, is_last=output is last) for output in verl_outputs]
    await compute_score(self, outputs, kwargs)
    for output, row in zip(verl_outputs, outputs, strict=True):  # expected by verl's other workers
        _copy_score(row, output)


async def _make_sample_record(worker: Any, output: AgentLoopOutput, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer, rollout = worker.tokenizer, OmegaConf.select(worker.config, "actor_rollout_ref.rollout")
    place = place_columns(kwargs, is_validation=False)
    task = Task(
        id=f"{place['uid']}/{place['session']}",
        prompt=to_messages(kwargs.get("raw_prompt")),
        ground_truth=(kwargs.get("reward_model") or {}).get("ground_truth"),
        data_source=str(kwargs.get("data_source") or ""),
        extra=dict(kwargs.get("extra_info") or {}),
        max_tokens=int(rollout.response_length),
    )
    name = OmegaConf.select(rollout, "multi_turn.format")
    has_tools = bool(getattr(worker, "tools", None)) or not all(output.response_mask)
    sample = sample_of_tokens(
        output.response_ids,
        output.response_mask,
        decode=functools.partial(tokenizer.decode, skip_special_tokens=False),
        task=task,
        log_probs=output.response_logprobs,
        calls=await _parse_calls(output, ToolParser.get_tool_parser(name, tokenizer)) if has_tools and name else None,
    )
    return sample.to_dict()


async def _parse_calls(
    output: AgentLoopOutput, parser: ToolParser
) -> dict[int, tuple[str, Sequence[tuple[str, Mapping[str, Any]]]]]:
    """Returns the turns that call tools, as verl's parser reads them."""
    calls_by_turn = {}
    for span in to_spans(output.response_mask):
        if span.is_model:
            content, calls = await parser.extract_tool_calls(output.response_ids[span.start : span.end])
            if calls:
                calls_by_turn[span.turn] = content, [(call.name, _parse_arguments(call.arguments)) for call in calls]
    return calls_by_turn


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _to_row(output: AgentLoopOutput, *, record: Mapping[str, Any], is_last: bool) -> ForeignOutput:
    numbers = {"num_turns": float(output.num_turns)}
    turn_ids = [span.turn for span in to_spans(output.response_mask) for _ in range(span.start, span.end)]
    fields = {name: getattr(output, name) for name in output.model_fields_set}
    return ForeignOutput.model_construct(
        **{
            **fields,
            "extra_fields": {**output.extra_fields, EPISODE_NUMBERS: numbers, SAMPLE: record},
            "token_rewards": [0.0] * len(output.response_mask),
            "turn_ids": turn_ids,
            "shared_ids": None,
            "is_external": None,
            "place": "last" if is_last else "earlier",
        }
    )


def _copy_score(row: AgentLoopOutput, output: AgentLoopOutput) -> None:
    result = row.extra_fields.get("reward_extra_info")
    if row.reward_score is None or result is None:
        return
    scored = Scored.take(result, total=row.reward_score)
    output.reward_score = 0.0 if scored.void is not None else row.reward_score
    output.extra_fields["reward_extra_info"] = dict(scored.numbers)
    if scored.void is not None:
        output.response_mask = [0] * len(output.response_mask)
