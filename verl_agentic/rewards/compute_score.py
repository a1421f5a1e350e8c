"""A rubric as verl's reward function, under any of verl's reward managers that keep extra fields (`naive`, `remote`):

reward:
  custom_reward_function:
    path: pkg://verl_agentic.rewards.compute_score
    name: compute_score
    reward_kwargs: {rubric: path/to/rubric.yaml}
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.rewards.response_samples import Task, sample_of_text
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import SAMPLE, to_result

_SINGLE_TURN = 2  # messages


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rubric: str,
    **_: Any,
) -> dict[str, Any]:
    """Returns verl's result of a sample: `score`, `acc`, and every part raw and weighted.

    Args:
        solution_str: the response; unused if verl's manager passes the episode's record, because it contains tool
            output.
        extra_info: the row's; verl's manager adds the number of turns and the episode's record.
        rubric: path of the rubric's YAML file.

    Raises:
        ConfigError: the rubric does not exist.
        DataError: there are several turns without a record.
    """
    scorer = _load_scorer(rubric)
    sample = sample_of(data_source, solution_str, ground_truth, extra_info)
    return to_result((await scorer.begin_for_verl(sample))[0])


def sample_of(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Sample:
    """Returns the episode's record, else a sample of one turn. Raises DataError for several turns without a record."""
    extra = dict(extra_info or {})
    record = extra.get(SAMPLE)
    if isinstance(record, Mapping):
        return Sample.from_dict(record)
    refuse_unknown_turns(extra.get("num_turns"))
    task = Task(id=str(extra.get("index", "")), ground_truth=ground_truth, data_source=data_source or "", extra=extra)
    return sample_of_text(solution_str, task=task)


def refuse_unknown_turns(num_turns: Any) -> None:
    """Raises DataError for an episode of several turns of which only the text is known.

    Args:
        num_turns: messages after the system prompt, as verl counts them: 2 for a question and its answer; None:
            unknown.
    """
    if num_turns is not None and int(num_turns) > _SINGLE_TURN:
        raise DataError(
            f"the text of several turns does not tell what the policy wrote and what tools answered, got "
            f"num_turns={num_turns} without the episode's record; run with the plugin in every process "
            "(verl-agentic doctor), or hand over a batch with response_mask"
        )


@functools.lru_cache(maxsize=8)
def _load_scorer(rubric: str) -> Scorer:
    if not isinstance(rubric, str) or not rubric:
        raise ConfigError(f"rubric must be the path of a YAML file, got {rubric!r}")
    read = Rubric.from_file(Path(rubric))
    if read.group_terms:
        raise ConfigError(
            f"a reward function sees one sample at a time, got {sorted(read.group_terms)}, which need the whole group; "
            "use reward.reward_manager.name=rubric"
        )
    return Scorer(read)
