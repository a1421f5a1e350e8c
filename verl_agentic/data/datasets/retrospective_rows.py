"""SFT rows from failed episodes that a model has rewritten into solved ones (retrospective rollouts).

The model writes the turns of the policy only. They are played in a fresh environment, and only episodes that the
environment scores as solved become rows. Their tokens were not sampled by the policy: the rows are for SFT, are marked
`synthetic`, and have no `prompt`, so no trainer of RL can read them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.text.tags import blocks
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.sft import write_sft
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.collect import AMPLE_LIMITS, run_episodes, scripted
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.rewards.sample import Sample

_ASKED = (
    "An agent failed the task below. Rewrite its turns so that the task is solved: keep what was right, and change "
    "what was wrong. Write every turn of the agent from the first on, in the form of its own turns, each between "
    "<turn> and </turn>. Do not write the environment's answers; they will be produced by running your turns."
)


async def write_retrospective_rows(
    samples: Sequence[Sample],
    path: Path,
    *,
    package: EnvPackage,
    codec: Codec,
    tokenizer: Any,
    model: ChatModel,
    config: Mapping[str, Any] | None = None,
    solved_at: float = 1.0,
) -> int:
    """Writes the rows that `data.datasets.sft.TrajectoryDataset` reads; returns how many.

    Args:
        samples: stored episodes of one environment; those with a lower outcome than `solved_at` are rewritten.
        path: of the file.
        package: the environment.
        codec: protocol of the rows.
        tokenizer: of the model that will be trained.
        model: writes the turns.
        config: keyword arguments of `make_env`.
        solved_at: minimum outcome of a success.

    Raises:
        ConfigError: key, URL or model is wrong.
    """
    failed = [sample for sample in samples if sample.env is not None and sample.env.outcome < solved_at]
    rewrites = [(sample, await _rewrite_turns(sample, model)) for sample in failed]
    played = [(sample, turns) for sample, turns in rewrites if turns]
    episodes = await run_episodes(
        [
            EnvRow(
                prompt=sample.prompt,
                ground_truth=sample.ground_truth,
                data_source=sample.data_source,
                extra=sample.extra,
            )
            for sample, _ in played
        ],
        make_env=functools.partial(package.make_env, **(config or {})),
        setup_for=lambda index, row: scripted(
            lambda messages: played[index][1][
                sum(message.role == "assistant" for message in messages[len(row.prompt) :])
            ],
            codec=codec,
            tokenizer=tokenizer,
            limits=replace(AMPLE_LIMITS, max_turns=len(played[index][1])),
        ),
    )
    solved = [episode for episode in episodes if not episode.is_void and episode.reward.outcome >= solved_at]
    return write_sft(solved, path, marks={"synthetic": True})


async def _rewrite_turns(sample: Sample, model: ChatModel) -> list[str]:
    lines = [f"{message.role}: {message.content}" for message in sample.prompt]
    for turn in sample.turns:
        lines += [f"agent: {turn.text}", *(f"environment: {text}" for text in turn.observations)]
    reply = await model.ask([Message("user", "\n\n".join([_ASKED, *lines]))])
    return [text.strip() for text in blocks(reply.text or "", "turn")]
