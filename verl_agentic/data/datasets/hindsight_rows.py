"""SFT rows from stored episodes: solved ones, and failed ones under the task that they solved instead.

The loop of training makes the rows: it repeats the turns under the new prompt, with the recorded observations. So ids
and mask are those of a rollout, and there are no log-probs of the old prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_agentic.base.deadlines import within
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError, EnvError, boundary
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, Tool, ToolCall
from verl_agentic.data.datasets.sft import write_sft
from verl_agentic.episode.codec.calls.tool_formats import THINK
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.collect import AMPLE_LIMITS, Script, run_episodes, scripted
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.policies.chat_messages import plain_text
from verl_agentic.graders.groups.hindsight import relabelled
from verl_agentic.rewards.sample import Sample, Turn

_CUT = (StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL)
_RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True)
class HindsightRows:
    """The numbers of stored episodes by use."""

    solved: int
    """Solved episodes, written as they were."""
    relabelled: int
    """Failed episodes, written under the task that they solved."""
    left_out: int
    """Episodes that gave no row: without a task, cut inside a turn, or different when repeated."""


async def write_hindsight_rows(
    samples: Sequence[Sample],
    path: Path,
    *,
    package: EnvPackage,
    codec: Codec,
    tokenizer: Any,
    config: Mapping[str, Any] | None = None,
    solved_at: float = 1.0,
) -> HindsightRows:
    """Writes the rows that `data.datasets.sft.TrajectoryDataset` reads, and returns their numbers.

    Args:
        samples: stored episodes of one environment (`graders.stored_samples.read_samples`).
        path: of the file.
        package: the environment, with `describe`.
        codec: protocol of the rows.
        tokenizer: of the model that will be trained.
        config: keyword arguments of `make_env`, which gives the tools of the prompt.
        solved_at: minimum outcome of a success.

    Raises:
        DataError: the environment has no `describe`, or an episode has no score.
    """
    if package.describe is None:
        raise DataError(
            f"environment {package.env_id!r} has no describe(sample), which relabelling needs; add one, unless its "
            "answers are right or wrong, as in maths and code"
        )
    recorded: list[_Recorded] = []
    end = tokenizer.decode([tokenizer.eos_token_id])
    for sample in samples:
        variants = [
            variant
            for variant in relabelled([sample], package.describe, solved_at=solved_at)
            if _is_row(variant, solved_at)
        ]
        tools = await _load_tools(package, sample, config or {}) if variants else ()
        recorded += [
            _Recorded(variant, tools, [_render_turn(turn, end, codec) for turn in variant.turns])
            for variant in variants
        ]
    episodes = await _replay_episodes(recorded, codec=codec, tokenizer=tokenizer)
    pairs = [
        (env, episode) for env, episode in zip(recorded, episodes, strict=True) if env.is_repeated_by(episode, end)
    ]
    write_sft([episode for _, episode in pairs], path)
    num_relabelled = sum("relabelled" in env.sample.extra for env, _ in pairs)
    return HindsightRows(
        solved=len(pairs) - num_relabelled, relabelled=num_relabelled, left_out=len(samples) - len(pairs)
    )


class _Recorded:
    """An environment that repeats recorded observations."""

    def __init__(self, sample: Sample, tools: Sequence[Tool], texts: Sequence[str]) -> None:
        self.sample = sample
        self.tools = tools
        self.texts = texts
        self._remaining = list(sample.turns)

    async def start(self) -> tuple[Message, ...]:
        return self.sample.prompt

    async def step(self, action: Action) -> Observation:
        turn = self._remaining.pop(0)
        if not self._remaining:
            return Observation(stop=self.sample.stop_reason)
        return Observation(_label_observations(turn, action))

    async def score(self, transcript: Transcript) -> Reward:
        assert self.sample.env is not None
        return self.sample.env

    async def close(self) -> None:
        pass

    def is_repeated_by(self, episode: Episode, end: str) -> bool:
        """Returns whether the episode has the recorded text in each turn; `end` is the text of the end-of-turn
        token."""
        # Another protocol than the run's finds other calls in the same text.
        calls = [[call.name for call in turn.calls] for turn in self.sample.turns]
        recorded_turns = list(zip(self.texts, calls, strict=True))
        played_turns = [
            (action.text.removesuffix(end), [call.name for call in action.tool_calls]) for action in episode.actions
        ]
        return recorded_turns == played_turns and episode.stop_reason is self.sample.stop_reason


def _is_row(sample: Sample, solved_at: float) -> bool:
    assert sample.env is not None
    return bool(sample.turns) and sample.env.outcome >= solved_at and sample.stop_reason not in _CUT


def _label_observations(turn: Turn, action: Action) -> tuple[Message, ...]:
    """Returns the observations of a turn as messages: the results of its calls, and messages of a user."""
    results = [
        (call.result, tool_call.name, tool_call.call_id)
        for call, tool_call in zip(turn.calls, action.tool_calls, strict=False)
        if call.result is not None
    ]
    messages = []
    for text in turn.observations:
        if results and results[0][0] == text:
            _, name, call_id = results.pop(0)
            messages.append(Message("tool", text, name=name, call_id=call_id))
        else:
            messages.append(Message("user", text))
    return tuple(messages)


async def _load_tools(package: EnvPackage, sample: Sample, config: Mapping[str, Any]) -> Sequence[Tool]:
    row = EnvRow(
        prompt=sample.prompt, ground_truth=sample.ground_truth, data_source=sample.data_source, extra=sample.extra
    )
    with boundary(EnvError, f"the tools of {package.env_id!r}"):
        env = package.make_env(row, **config)
        try:
            await within(env.start(), AMPLE_LIMITS.start_timeout_s, what="the start of the environment")
            return tuple(env.tools)
        finally:
            await env.close()


def _render_turn(turn: Turn, end: str, codec: Codec) -> str:
    """Returns the turn's text; in the codec's form if a server of messages gave no text."""
    calls = tuple(ToolCall(call.name, call.arguments) for call in turn.calls)
    message = Message("assistant", turn.content, tool_calls=calls)
    text = turn.text.removesuffix(end)
    thoughts, plain, rest = text.rpartition(plain_text(message))
    is_servers = bool(plain) and not rest and (not thoughts or thoughts.startswith(THINK[0]))
    return codec.render_action(replace(message, content=thoughts + message.content)) if calls and is_servers else text


async def _replay_episodes(recorded: Sequence[_Recorded], *, codec: Codec, tokenizer: Any) -> list[Episode]:
    def script(env: _Recorded) -> Script:
        start = len(env.sample.prompt)
        return lambda messages: env.texts[sum(message.role == "assistant" for message in messages[start:])]

    return await run_episodes(
        [EnvRow(prompt=env.sample.prompt, extra={_RECORDED: env}) for env in recorded],
        make_env=lambda row: row.extra[_RECORDED],
        setup_for=lambda index, row: scripted(
            script(recorded[index]), codec=codec, tokenizer=tokenizer, limits=AMPLE_LIMITS
        ),
    )
