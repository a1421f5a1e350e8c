"""Patches verl: `AgentLoopWorker._compute_score`, so that our rewards score episodes of any agent loop.

A rubric scores in the process of the agent loop, which has the whole episode. Reward functions score in verl's reward
workers, which get the tokens of a response without the mask of sampled tokens. So the row takes the record of the
episode there. Rows of other agent loops get the same record as those of `env_agent`. All reward functions get the
ground truth and `extra_info` of the row as they were written, not the JSON text of the columns.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.experimental.agent_loop.tool_parser import ToolParser

from verl_agentic.log.files.parquet import decoded_columns
from verl_agentic.rewards.response_samples import Task, sample_of_tokens, to_messages, to_spans
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import SAMPLE, read_score, row_numbers, to_pending
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.reward.reward_features import count_scorer_processes, rubric
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
async def _score_rows(compute_score: Any, self: Any, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
    kwargs = decoded_columns(kwargs)
    last = outputs[-1]
    is_foreign = type(last) is AgentLoopOutput
    is_ours = scores_foreign_rows(self.config) if is_foreign else isinstance(last, EnvAgentOutput)
    if not is_ours or last.reward_score is not None or self.reward_loop_worker_handles is None:
        return await compute_score(self, outputs, kwargs)
    verl_outputs = list(outputs)
    if is_foreign:
        sample = await _make_sample(self, last, kwargs)
        outputs[:] = [_to_row(output, sample=sample, is_last=output is last) for output in verl_outputs]
    rows: list[Any] = outputs
    if (scorer := _get_scorer(self)) is not None:
        await score_rows(scorer, rows)
    else:
        rows[-1].extra_fields[SAMPLE] = rows[-1].sample.to_dict()
        await compute_score(self, outputs, kwargs)
        del rows[-1].extra_fields[SAMPLE]
    if is_foreign:
        for output, row in zip(verl_outputs, rows, strict=True):  # expected by verl's other workers
            _copy_score(row, output)


def _get_scorer(worker: Any) -> Scorer | None:
    """Returns the scorer of a worker of agent loops; None if a reward function scores."""
    state = state_of(worker)
    if state.scorer is None and (chosen := rubric(worker.config.reward)) is not None:
        num_workers = OmegaConf.select(worker.config, "actor_rollout_ref.rollout.agent.num_workers")
        state.scorer = Scorer(chosen, workers=count_scorer_processes(num_workers))
    return state.scorer


async def score_rows(scorer: Scorer, rows: Sequence[EnvAgentOutput]) -> None:
    """Scores the rows of an episode, without components that see whole groups."""
    last, began = rows[-1], time.monotonic()
    assert last.sample is not None
    score, verdicts = await scorer.begin_for_verl(last.sample)
    is_pending = bool(scorer.rubric.group_terms) and score.void is None
    pending = to_pending(last.sample.to_dict(), verdicts) if is_pending else None
    for row in rows:
        row.scored, row.pending = score, pending
    last.reward_score = score.total
    last.extra_fields["reward_extra_info"] = row_numbers(score)
    last.metrics.compute_score = time.monotonic() - began


async def _make_sample(worker: Any, output: AgentLoopOutput, kwargs: Mapping[str, Any]) -> Sample:
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
    return sample_of_tokens(
        output.response_ids,
        output.response_mask,
        decode=functools.partial(tokenizer.decode, skip_special_tokens=False),
        task=task,
        log_probs=output.response_logprobs,
        calls=await _parse_calls(output, ToolParser.get_tool_parser(name, tokenizer)) if has_tools and name else None,
    )


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


def _to_row(output: AgentLoopOutput, *, sample: Sample, is_last: bool) -> ForeignOutput:
    turn_ids = [span.turn for span in to_spans(output.response_mask) for _ in range(span.start, span.end)]
    fields = {name: getattr(output, name) for name in output.model_fields_set}
    return ForeignOutput.model_construct(
        **{
            **fields,
            "extra_fields": dict(output.extra_fields),
            "numbers": {"num_turns": float(output.num_turns)},
            "sample": sample,
            "scored": None,
            "pending": None,
            "token_rewards": [0.0] * len(output.response_mask),
            "turn_ids": turn_ids,
            "shared_ids": None,
            "is_external": None,
            "place": "last" if is_last else "earlier",
        }
    )


def _copy_score(row: EnvAgentOutput, output: AgentLoopOutput) -> None:
    result = row.extra_fields.get("reward_extra_info")
    if row.reward_score is None or result is None:
        return
    scored = row.scored or read_score(result, total=row.reward_score)
    output.reward_score = 0.0 if scored.void is not None else row.reward_score
    output.extra_fields["reward_extra_info"] = row_numbers(scored)
    if scored.void is not None:
        output.response_mask = [0] * len(output.response_mask)
