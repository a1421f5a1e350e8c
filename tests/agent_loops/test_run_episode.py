"""Each of the invariants 1-5 and 7-9 of docs/design.md, and what happens when the world fails."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, FakeEnv, decode, encode, episode_setup
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.env import Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvError, PolicyError, SandboxError
from verl_agentic.base.settings import read_settings
from verl_agentic.base.types import Action, Message, Observation, Reward, SegmentKind, StopReason
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import Completion, ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode


def script(*turns: str) -> ScriptedPolicy:
    """Plays `turns` in order, by the number of assistant messages so far."""
    return ScriptedPolicy(
        lambda messages: turns[sum(m.role == "assistant" for m in messages)], encode=encode, end_ids=[END]
    )


async def play(policy: object, env: FakeEnv | None = None, limits: EpisodeLimits = LIMITS) -> tuple[Episode, FakeEnv]:
    env = env or FakeEnv(ROW)
    episode = await run_episode(
        ROW,
        make_env=lambda row: env,
        setup=episode_setup(policy, limits),  # type: ignore[arg-type]
        request_id="r",
    )
    return episode, env


def sampled_text(episode: Episode) -> str:
    (trajectory,) = episode.trajectories
    return decode([t for t, m in zip(trajectory.response_ids, trajectory.response_mask, strict=True) if m])


async def test_the_sampled_ids_are_the_trained_ids_and_only_they_have_mask_1() -> None:
    episode, _ = await play(script("call:a", "call:b", "it is 42"))
    (trajectory,) = episode.trajectories
    assert decode(trajectory.prompt_ids) == "<user>question<assistant>"
    assert decode(trajectory.response_ids) == "call:a$\n<tool>42<assistant>call:b$\n<tool>42<assistant>it is 42$"
    assert sampled_text(episode) == "call:a$call:b$it is 42$"
    assert episode.stop_reason is StopReason.ANSWERED


async def test_segments_tell_who_wrote_what_in_which_turn() -> None:
    episode, _ = await play(script("call:a", "42"))
    (trajectory,) = episode.trajectories
    spans = [(s.kind, s.turn, decode(trajectory.response_ids[s.start : s.end])) for s in trajectory.segments()]
    assert spans == [
        (SegmentKind.MODEL, 0, "call:a$"),
        (SegmentKind.TOOL, 0, "\n<tool>42<assistant>"),
        (SegmentKind.MODEL, 1, "42$"),
    ]


async def test_turn_rewards_lie_on_the_last_model_token_of_their_turn_and_the_outcome_on_the_last_of_all() -> None:
    episode, _ = await play(script("call:a", "42"), FakeEnv(ROW, turn_reward=0.25))
    (rewards,) = episode.token_rewards()
    where = {i: r for i, r in enumerate(rewards) if r}
    # "call:a$" is tokens 0-6; "\n<tool>42<assistant>" 7-26; "42$" 27-29, which earns its turn and the outcome.
    assert where == {6: 0.25, 29: 1.25}
    assert all(m for r, m in zip(rewards, episode.trajectories[0].response_mask, strict=True) if r)


async def test_an_answer_that_stands_only_in_tool_output_scores_0() -> None:
    episode, env = await play(script("call:a", "I do not know"))
    assert env.transcript is not None
    assert "42" in [m.content for m in env.transcript.messages]
    assert episode.reward.outcome == 0.0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_turns": 2}, StopReason.MAX_TURNS),
        ({"max_response_tokens": 40}, StopReason.MAX_TOKENS),  # cut in mid-turn: 7 + 20 + 7 + 6 of the observation
        ({"max_response_tokens": 30}, StopReason.MAX_TOKENS),
        ({"max_context_tokens": 60}, StopReason.CONTEXT_FULL),
    ],
)
async def test_every_budget_ends_the_episode_with_its_reason_on_a_trainable_token(
    limits: dict[str, int], reason: StopReason
) -> None:
    episode, env = await play(script(*["call:a"] * 9), limits=replace(LIMITS, **limits))
    (trajectory,) = episode.trajectories
    assert episode.stop_reason is reason
    assert trajectory.response_mask[-1] == 1
    assert len(trajectory.response_ids) <= limits.get("max_response_tokens", 200)
    assert len(trajectory.token_ids) <= limits.get("max_context_tokens", 300)
    assert (env.closed, env.scored) == (1, 1)


async def test_a_turn_that_is_cut_is_neither_carried_out_nor_lost_to_the_scorer() -> None:
    steps: list[object] = []
    env = FakeEnv(ROW, step_hook=steps.append)
    episode, env = await play(script("the answer is 42, because"), env, replace(LIMITS, max_turn_tokens=16))
    assert episode.stop_reason is StopReason.MAX_TOKENS
    assert steps == []
    assert env.transcript is not None and env.transcript.final_answer == "the answer is 42"


class Failing:
    def __init__(self, error: BaseException | None = None, *, hang: bool = False) -> None:
        self.error, self.hang = error, hang

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        if self.hang:
            await asyncio.sleep(3600)
        if self.error:
            raise self.error
        return Completion(token_ids=[], log_probs=[], finish_reason="stop")


async def raising(_: object) -> None:
    raise ConnectionError("sandbox gone")


async def hanging(_: object) -> None:
    await asyncio.sleep(3600)


SHORT = replace(LIMITS, turn_timeout_s=0.05, score_timeout_s=0.05, close_timeout_s=0.05)


@pytest.mark.parametrize(
    ("policy", "env", "reason", "error"),
    [
        (script("call:a"), FakeEnv(ROW, step_hook=raising), StopReason.INFRA_ERROR, "sandbox gone"),
        (script("call:a"), FakeEnv(ROW, step_hook=hanging), StopReason.TIMEOUT, None),
        (Failing(RuntimeError("server gone")), FakeEnv(ROW), StopReason.INFRA_ERROR, "server gone"),
        (Failing(hang=True), FakeEnv(ROW), StopReason.TIMEOUT, None),
        (Failing(), FakeEnv(ROW), StopReason.INFRA_ERROR, "1 to 200 tokens, got 0"),
    ],
    ids=["env raises", "env hangs", "server raises", "server hangs", "empty turn"],
)
async def test_what_fails_around_the_policy_makes_a_void_row_and_not_a_reward(
    policy: object, env: FakeEnv, reason: StopReason, error: str | None
) -> None:
    episode, env = await play(policy, env, SHORT)
    (trajectory,) = episode.trajectories
    assert episode.stop_reason is reason and episode.is_void
    assert trajectory.response_ids and not any(trajectory.response_mask)
    assert episode.token_rewards() == [[0.0] * len(trajectory.response_ids)]
    assert error is None or error in (episode.error or "")
    assert (env.closed, env.scored) == (1 + episode.retries, 0)


async def test_the_episode_deadline_ends_an_endless_episode() -> None:
    async def slow(_: object) -> None:
        await asyncio.sleep(0.03)

    limits = replace(
        LIMITS, max_turns=10_000, max_response_tokens=10**6, max_context_tokens=10**6, episode_timeout_s=0.2
    )
    episode, env = await play(script(*["call:a"] * 10_000), FakeEnv(ROW, step_hook=slow), limits)
    assert episode.stop_reason is StopReason.TIMEOUT and env.closed == 1


async def test_a_scorer_that_fails_is_an_error_and_not_a_reward_of_0() -> None:
    class Scoreless(FakeEnv):
        async def score(self, transcript: object) -> object:  # type: ignore[override]
            raise KeyError("ground_truth")

    episode, env = await play(script("42"), Scoreless(ROW))
    assert episode.is_void and env.closed == 1
    place = r"\(.*test_run_episode.py:\d+ in score\)"
    assert re.fullmatch(rf"ScoringError: scoring failed, got KeyError: 'ground_truth' {place}", episode.error or "")
    assert episode.traceback.endswith("KeyError: 'ground_truth'\n") and "in score\n" in episode.traceback


async def test_cancellation_closes_the_environment_once_and_goes_on() -> None:
    env = FakeEnv(ROW, step_hook=hanging)
    task = asyncio.create_task(play(script("call:a"), env))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (env.started, env.closed) == (1, 1)


async def test_an_aborted_turn_makes_the_episode_void() -> None:
    class Aborted:
        async def generate(self, prompt_ids: Sequence[int], **_: object) -> Completion:
            return Completion(token_ids=[65], log_probs=[0.0], finish_reason="aborted")

    episode, _ = await play(Aborted())
    assert episode.stop_reason is StopReason.CANCELLED and episode.is_void


async def test_an_environment_that_cannot_be_made_is_a_void_episode() -> None:
    def broken(_: object) -> FakeEnv:
        raise OSError("no disk")

    episode = await run_episode(ROW, make_env=broken, setup=episode_setup(script("42")), request_id="r")
    assert episode.is_void and episode.trajectories[0].response_ids == [7] and "no disk" in (episode.error or "")


async def test_an_environment_that_cannot_be_closed_does_not_cost_the_episode(caplog: pytest.LogCaptureFixture) -> None:
    class Leaky(FakeEnv):
        async def close(self) -> None:
            raise OSError("busy")

    episode, _ = await play(script("42"), Leaky(ROW))
    assert episode.reward.outcome == 1.0
    assert "may have leaked" in caplog.text


async def test_a_prompt_that_fills_the_context_is_the_users_error() -> None:
    env = FakeEnv(ROW)
    with pytest.raises(DataError, match="max_context_tokens"):
        await play(script("42"), env, replace(LIMITS, max_context_tokens=25))
    assert env.closed == 1


# Attempts in fresh environments.


def failing(times: int, error: Exception | None = None) -> tuple[list[FakeEnv], Callable[[object], FakeEnv]]:
    """Returns the list of environments that are made, and a maker whose first ones fail at their first step."""
    envs: list[FakeEnv] = []

    async def fail(_: object) -> None:
        raise error or ConnectionError("sandbox gone")

    def make(_: object) -> FakeEnv:
        envs.append(FakeEnv(ROW, step_hook=fail if len(envs) < times else None))
        return envs[-1]

    return envs, make


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_a_failure_is_played_anew_in_a_fresh_environment_and_counted(retries: int) -> None:
    envs, make = failing(retries)
    limits = replace(LIMITS, max_retries=3)
    episode = await run_episode(ROW, make_env=make, setup=episode_setup(script("call:a", "42"), limits), request_id="r")
    assert (episode.stop_reason, episode.retries) == (StopReason.ANSWERED, retries)
    assert [(env.started, env.closed, env.scored) for env in envs] == [(1, 1, 0)] * retries + [(1, 1, 1)]
    # Nothing of the attempts before is in the row.
    (row,) = episode.trajectories
    assert decode(row.response_ids) == "call:a$\n<tool>42<assistant>42$" and set(row.turn_ids) == {0, 1}
    assert len(episode.messages) == 4 and episode.numbers()["tool_calls"] == 1.0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EnvError("broken"), "env"),
        (ConnectionError("gone"), "env"),
        (SandboxError("gone"), "sandbox"),
        (PolicyError("server gone"), "policy"),
    ],
)
async def test_after_the_last_retry_the_episode_is_void_and_says_whose_failure_it_was(
    error: Exception, kind: str
) -> None:
    envs, make = failing(99, error)
    limits = replace(LIMITS, max_retries=2)
    episode = await run_episode(ROW, make_env=make, setup=episode_setup(script("call:a"), limits), request_id="r")
    assert episode.is_void and episode.stop_reason is StopReason.INFRA_ERROR
    assert (episode.error_kind, episode.retries, len(envs)) == (kind, 2, 3)
    assert [env.closed for env in envs] == [1, 1, 1]
    assert episode.numbers()[f"error/{kind}"] == 1.0 and episode.numbers()["retries"] == 2.0


async def test_every_attempt_has_a_request_id_of_its_own() -> None:
    seen: list[str] = []

    class Watching(ScriptedPolicy):
        async def generate(self, prompt_ids: Sequence[int], *, request_id: str, **rest: Any) -> Completion:
            seen.append(request_id)
            return await super().generate(prompt_ids, request_id=request_id, **rest)

    _, make = failing(1)
    policy = Watching(lambda m: "42" if m[-1].role == "tool" else "call:a", encode=encode, end_ids=[END])
    await run_episode(ROW, make_env=make, setup=episode_setup(policy), request_id="r")
    assert seen == ["r", "r-1", "r-1"]


async def test_a_policy_that_fails_once_costs_one_attempt() -> None:
    class Flaky(ScriptedPolicy):
        failures = 1

        async def generate(self, prompt_ids: Sequence[int], **rest: Any) -> Completion:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("server restarts")
            return await super().generate(prompt_ids, **rest)

    episode, env = await play(Flaky(lambda _: "42", encode=encode, end_ids=[END]))
    assert (episode.reward.outcome, episode.retries, env.closed) == (1.0, 1, 2)


async def test_an_episode_that_has_no_time_left_is_not_begun_anew() -> None:
    envs, make = failing(99)
    limits = replace(LIMITS, max_retries=5, retry_wait_s=0.2, episode_timeout_s=0.55)
    episode = await run_episode(ROW, make_env=make, setup=episode_setup(script("call:a"), limits), request_id="r")
    # After the first retry 0.35 s are left; the second would wait twice as long as the first, for 0.4 s.
    assert episode.stop_reason is StopReason.INFRA_ERROR and len(envs) == 2


async def test_an_episode_that_runs_out_of_time_in_a_retry_tells_both_reasons() -> None:
    envs: list[FakeEnv] = []

    def make(_: object) -> FakeEnv:
        envs.append(FakeEnv(ROW, step_hook=hanging if envs else raising))
        return envs[-1]

    limits = replace(LIMITS, episode_timeout_s=0.3)
    episode = await run_episode(ROW, make_env=make, setup=episode_setup(script("call:a"), limits), request_id="r")
    assert (episode.stop_reason, episode.error_kind, episode.retries) == (StopReason.TIMEOUT, None, 1)
    assert "deadline" in (episode.error or "") and "sandbox gone" in (episode.error or "")


async def test_neither_a_late_turn_nor_a_failing_scorer_is_played_anew() -> None:
    class Scoreless(FakeEnv):
        async def score(self, transcript: object) -> Reward:
            raise KeyError("ground_truth")

    for env, turn in ((FakeEnv(ROW, step_hook=hanging), "call:a"), (Scoreless(ROW), "42")):
        episode, _ = await play(script(turn), env, replace(SHORT, max_retries=3))
        assert episode.is_void and episode.retries == 0 and env.started == 1


async def test_a_sandbox_that_dies_while_the_episode_is_scored_is_no_fault_of_the_scorer() -> None:
    class Dying(FakeEnv):
        async def score(self, transcript: object) -> Reward:
            self.scored += 1
            if self.scored == 1:
                raise SandboxError("gone")
            return Reward(1.0)

    episode, env = await play(script("42"), Dying(ROW))
    assert (episode.reward.outcome, episode.retries, env.closed) == (1.0, 1, 2)


async def test_an_environment_that_does_not_start_in_time_is_begun_anew() -> None:
    class Slow(FakeEnv):
        async def start(self) -> tuple[Message, ...]:
            self.started += 1
            if self.started == 1:
                await asyncio.sleep(3600)
            return self.row.prompt

    episode, env = await play(script("42"), Slow(ROW), replace(LIMITS, start_timeout_s=0.05))
    assert (episode.reward.outcome, episode.retries, env.closed) == (1.0, 1, 2)
    limits = replace(LIMITS, start_timeout_s=0.05, max_retries=0)
    episode, env = await play(script("42"), Slow(ROW), limits)
    assert episode.stop_reason is StopReason.INFRA_ERROR and episode.error_kind == "env"
    assert "did not start" in (episode.error or "") and "raise start_timeout_s" in (episode.error or "")
    assert env.closed == 1


# Environments that misbehave when they are ended.


async def test_an_environment_that_swallows_its_cancellation_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn(_: object) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    env = FakeEnv(ROW, step_hook=stubborn)
    began = time.monotonic()
    episode, env = await play(script("call:a"), env, SHORT)
    assert time.monotonic() - began < 1.0
    assert (episode.stop_reason, env.closed, env.scored) == (StopReason.TIMEOUT, 1, 0)
    assert "ignores its cancellation" in caplog.text
    rows = [list(row.response_ids) for row in episode.trajectories]
    release.set()
    await asyncio.sleep(0.02)  # what was left behind ends, and changes nothing any more
    assert [list(row.response_ids) for row in episode.trajectories] == rows
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_environment_that_cancels_itself_has_failed() -> None:
    async def cancels_itself(_: object) -> None:
        raise asyncio.CancelledError

    episode, env = await play(script("call:a"), FakeEnv(ROW, step_hook=cancels_itself))
    assert episode.stop_reason is StopReason.INFRA_ERROR and "cancellation of its own" in (episode.error or "")
    assert (episode.retries, env.closed) == (1, 2)


@pytest.mark.parametrize("where", ["make", "start", "step", "score", "close"])
async def test_an_environment_that_means_to_end_the_process_has_failed(where: str) -> None:
    class Leaving(FakeEnv):
        def leave(self, at: str) -> None:
            if at == where:
                sys.exit(1)

        async def start(self) -> tuple[Message, ...]:
            self.leave("start")
            return await super().start()

        async def step(self, action: Action) -> Observation:
            self.leave("step")
            return await super().step(action)

        async def score(self, transcript: Transcript) -> Reward:
            self.leave("score")
            return await super().score(transcript)

        async def close(self) -> None:
            await super().close()
            self.leave("close")

    def make(_: object) -> FakeEnv:
        if where == "make":
            sys.exit(1)
        return Leaving(ROW)

    episode = await run_episode(ROW, make_env=make, setup=episode_setup(script("42")), request_id="r")
    if where == "close":
        assert episode.reward.outcome == 1.0
    else:
        assert episode.stop_reason is StopReason.INFRA_ERROR and "SystemExit" in (episode.error or "")


async def test_an_environment_that_hangs_while_it_is_closed_does_not_cost_the_episode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Clinging(FakeEnv):
        async def close(self) -> None:
            self.closed += 1
            await asyncio.sleep(3600)

    episode, env = await play(script("42"), Clinging(ROW), SHORT)
    assert episode.reward.outcome == 1.0 and env.closed == 1
    assert "may have leaked" in caplog.text


async def test_a_second_cancellation_does_not_interrupt_the_closing(caplog: pytest.LogCaptureFixture) -> None:
    began, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(FakeEnv):
        async def close(self) -> None:
            self.closed += 1
            began.set()
            await may_end.wait()
            ended.set()
            raise OSError("busy")

    env = Slow(ROW, step_hook=hanging)
    task = asyncio.create_task(play(script("call:a"), env))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait_for(began.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert env.closed == 1 and not ended.is_set()
    may_end.set()
    deadline = time.monotonic() + 10
    while "may have leaked" not in caplog.text:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert env.closed == 1 and ended.is_set()


async def test_an_episode_that_is_cancelled_between_two_attempts_has_nothing_left_to_close() -> None:
    envs, make = failing(99)
    limits = replace(LIMITS, max_retries=3, retry_wait_s=60.0)
    task = asyncio.create_task(
        run_episode(ROW, make_env=make, setup=episode_setup(script("call:a"), limits), request_id="r")
    )
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [env.closed for env in envs] == [1]


async def test_a_guided_attempt_that_is_void_leaves_the_failure_before_it() -> None:
    class Guiding(FakeEnv):
        async def guidance(self, transcript: Transcript) -> str:
            return "try again"

    envs: list[FakeEnv] = []

    def make(_: object) -> FakeEnv:
        envs.append(Guiding(ROW, step_hook=hanging if envs else None))
        return envs[-1]

    chosen = episode_setup(script("41"), replace(SHORT, max_retries=0), guidance=True)
    episode = await run_episode(ROW, make_env=make, setup=chosen, request_id="r")
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ANSWERED, 0.0)
    assert decode(episode.trajectories[0].prompt_ids) == "<user>question<assistant>"
    assert episode.numbers()["guided"] == 0.0 and [env.closed for env in envs] == [1, 1]


async def test_guidance_that_leaves_no_room_for_the_policy_leaves_the_failure_before_it() -> None:
    class Verbose(FakeEnv):
        async def guidance(self, transcript: Transcript) -> str:
            return "x" * 1_000

    chosen = episode_setup(script("41"), LIMITS, guidance=True)
    episode = await run_episode(ROW, make_env=Verbose, setup=chosen, request_id="r")
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ANSWERED, 0.0)
    assert episode.numbers()["guided"] == 0.0


async def test_siblings_are_not_held_up_by_one_that_hangs() -> None:
    hung = play(script("call:a"), FakeEnv(ROW, step_hook=hanging), replace(SHORT, turn_timeout_s=0.5))
    quick = [play(script("42")) for _ in range(8)]
    hung_task = asyncio.create_task(hung)
    results = await asyncio.wait_for(asyncio.gather(*quick), 0.4)
    assert all(episode.reward.outcome == 1.0 for episode, _ in results)
    assert (await hung_task)[0].stop_reason is StopReason.TIMEOUT


async def test_every_episode_has_one_stop_reason() -> None:
    episodes = [
        (await play(script("42")))[0],
        (await play(Failing(RuntimeError("x"))))[0],
        (await play(script(*["call:a"] * 4)))[0],
    ]
    numbers = [episode.numbers() for episode in episodes]
    for of_one in numbers:
        stops = [value for name, value in of_one.items() if name.startswith("stop/")]
        assert len(stops) == len(StopReason) and sum(stops) == 1.0
    assert [n["acc"] for n in numbers] == [1.0, 0.0, 0.0] and [n["used_tool"] for n in numbers] == [0.0, 0.0, 1.0]


turns = st.lists(
    st.one_of(st.text("ab4 2é", max_size=12), st.sampled_from(["call:a", "call:b"])), min_size=9, max_size=9
)


@given(turns=turns, max_turns=st.integers(1, 5), response=st.integers(1, 90), context=st.integers(26, 120))
def test_invariants_hold_for_any_script_and_any_budget(
    turns: list[str], max_turns: int, response: int, context: int
) -> None:
    limits = EpisodeLimits(max_turns=max_turns, max_response_tokens=response, max_context_tokens=context)
    episode, env = asyncio.run(play(script(*turns), limits=limits))
    (trajectory,) = episode.trajectories
    assert trajectory.response_mask[-1] == 1
    assert len(trajectory.response_ids) <= response and len(trajectory.token_ids) <= context
    assert "".join(f"{t}$" for t in turns).startswith(sampled_text(episode))
    (rewards,) = episode.token_rewards()
    assert sum(rewards) == episode.reward.total
    assert all(m == 1 for r, m in zip(rewards, trajectory.response_mask, strict=True) if r)
    covered = [i for s in trajectory.segments() for i in range(s.start, s.end)]
    assert covered == list(range(len(trajectory.response_ids)))
    assert env.closed == 1 and episode.stop_reason not in (StopReason.CANCELLED, StopReason.INFRA_ERROR)


@pytest.mark.parametrize("bad", [{"max_turn": 3}, {"max_turns": 0}, {"turn_timeout_s": -1.0}])
def test_limits_refuse_unknown_keys_and_impossible_values(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        read_settings(EpisodeLimits, bad, section="limits", max_response_tokens=8, max_context_tokens=16)


@pytest.mark.parametrize("error", [EnvError("env"), PolicyError("policy")])
def test_errors_survive_pickling(error: Exception) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
