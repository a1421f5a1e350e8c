"""Episodes that branch from each other: what they share, what is replayed, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, CharCodec, FakeEnv, decode, encode, episode_setup
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, PolicyError
from verl_agentic.base.types import Action, Message, Observation, StopReason
from verl_agentic.episode.attempt.attempt import Attempt
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import Exploration
from verl_agentic.episode.loop_settings import LoopSettings, read_loop_settings
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.methods import branching as module
from verl_agentic.methods.branching import NOT_SHARED, Siblings, run_branching_episode
from verl_agentic.methods.branching_rule import Branching

VOCAB = 100
ALWAYS = Branching(initial=1, probability=1.0, entropy_weight=0.0)
NEVER = Branching(initial=1, probability=0.0, entropy_weight=0.0)


@dataclass
class Writer:
    """Calls tools for some turns and then answers; every turn of every episode reads differently."""

    num_calls: int = 1
    log_prob: Callable[[int], float] = lambda turn: -1.0
    fails: Callable[[str], BaseException | None] = lambda request_id: None
    version: int = 1
    requests: list[tuple[str, list[int]]] = field(default_factory=list)

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        self.requests.append((request_id, list(prompt_ids)))
        await asyncio.sleep(0)
        error = self.fails(request_id)
        if error is not None:
            raise error
        turn = sum(message.role == "assistant" for message in messages)
        text = f"call:{request_id}{turn}" if turn < self.num_calls else f"{request_id} says 42"
        ids = [*encode(text), END][:max_tokens]
        self.version += 1
        return Completion(
            token_ids=ids,
            log_probs=[self.log_prob(turn)] * len(ids),
            finish_reason="stop",
            min_weights_version=self.version,
            max_weights_version=self.version,
        )


@dataclass
class Countdown(FakeEnv):
    """Answers a call with its name and the number of calls so far, and with what `salt` says."""

    salt: Callable[[], str] = str
    steps: list[str] = field(default_factory=list)

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        self.steps.append(action.tool_calls[0].name)
        text = f"{len(self.steps)}:{self.steps[-1]}{self.salt()}"
        message = Message("tool", text, elapsed_s=random.random())
        return Observation((message,), reward=0.5, info={"tool_calls": 1})


@dataclass
class Stage:
    """Plays groups, and keeps their environments."""

    policy: Any = field(default_factory=Writer)
    branching: Branching = ALWAYS
    limits: Any = LIMITS
    salt: Callable[[], str] = str
    group: str = "g"
    options: dict[str, Any] = field(default_factory=dict)
    envs: list[Countdown] = field(default_factory=list)

    def make_env(self, row: EnvRow) -> Countdown:
        self.envs.append(Countdown(row, salt=self.salt))
        return self.envs[-1]

    async def play(self, name: str) -> tuple[Episode, list[list[int]]]:
        return await run_branching_episode(
            ROW,
            make_env=self.make_env,
            setup=episode_setup(self.policy, self.limits, **self.options),
            request_id=name,
            branching=self.branching,
            group=self.group,
            vocab_size=VOCAB,
        )

    async def play_all(self, count: int) -> list[tuple[Episode, list[int]]]:
        names = "abcdefghijklmnopqrstuvwxyz"[:count]
        played = await asyncio.wait_for(asyncio.gather(*map(self.play, names)), 20)
        assert not module._groups, "nobody is left"
        return [(episode, ids[-1]) for episode, ids in played]


def text(episode: Episode) -> str:
    (row,) = episode.trajectories
    return decode(row.response_ids)


async def test_a_branch_shares_the_tokens_up_to_the_observation_and_goes_on_by_itself() -> None:
    stage = Stage()
    (source, source_ids), (branch, branch_ids) = await stage.play_all(2)
    prefix = "call:a0$\n<tool>1:a0<assistant>"
    assert text(source) == f"{prefix}a says 42$"
    assert text(branch) == f"{prefix}b says 42$"
    first, second = source.trajectories[0], branch.trajectories[0]
    n = len(prefix)
    for column in ("response_ids", "response_mask", "log_probs", "turn_ids", "kinds"):
        assert getattr(first, column)[:n] == getattr(second, column)[:n], column
    assert first.prompt_ids == second.prompt_ids and first is not second
    assert second.response_mask[:n] == [1] * 8 + [0] * (n - 8), "what was sampled stays trained"
    assert source_ids == [0] * n + [NOT_SHARED] * (len(first.response_ids) - n)
    assert branch_ids == [0] * n + [NOT_SHARED] * (len(second.response_ids) - n)
    assert branch.turn_rewards == source.turn_rewards == {0: 0.5}
    assert [e.messages[:3] == source.messages[:3] for e in (source, branch)] == [True, True]


async def test_the_policy_continues_a_branch_from_exactly_the_shared_tokens() -> None:
    stage = Stage()
    _, (branch, _) = await stage.play_all(2)
    streams = {name: [ids for n, ids in stage.policy.requests if n == name] for name in "ab"}
    assert len(streams["a"]) == 2 and len(streams["b"]) == 1
    assert streams["b"][0] == streams["a"][1]
    assert branch.trajectories[0].token_ids[: len(streams["b"][0])] == streams["b"][0]


async def test_the_environment_of_a_branch_is_its_own_and_in_the_same_state() -> None:
    stage = Stage(Writer(num_calls=3), Branching(initial=1, probability=1.0, entropy_weight=0.0))
    _, (branch, _) = await stage.play_all(2)
    first, second = stage.envs
    assert first.steps == ["a0", "a1", "a2"]
    assert second.steps == ["a0", "b1", "b2"] and "<tool>2:b1" in text(branch)
    assert [env.closed for env in stage.envs] == [1, 1] and [env.scored for env in stage.envs] == [1, 1]


async def test_the_numbers_of_a_branch_tell_what_it_took_over_and_when_that_was_sampled() -> None:
    (source, _), (branch, _) = await Stage().play_all(2)
    mine, theirs = branch.numbers(), source.numbers()
    assert (theirs["branched"], theirs["shared_tokens"]) == (0.0, 0.0)
    assert (mine["branched"], mine["shared_tokens"], mine["branch_refused"]) == (1.0, 8.0, 0.0)
    assert mine["tool_calls"] == theirs["tool_calls"] == 1.0 and list(mine) == list(theirs)
    assert source.min_weights_version == branch.min_weights_version == 2, "its oldest tokens are those of the source"
    assert (source.max_weights_version, branch.max_weights_version) == (3, 4)


async def test_a_branch_of_a_branch_shares_with_both_up_to_where_it_left_them() -> None:
    # a gives a place after its first call to b, and b one after its own call to c; a's second one goes to d.
    stage = Stage(Writer(num_calls=2))
    (a, ids_a), (b, ids_b), (c, ids_c), (d, ids_d) = await stage.play_all(4)
    rows = {name: text(episode) for name, episode in zip("abcd", (a, b, c, d), strict=True)}
    ids = dict(zip("abcd", (ids_a, ids_b, ids_c, ids_d), strict=True))
    for one, other in itertools.combinations("abcd", 2):
        common = len(
            list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(rows[one], rows[other], strict=False)))
        )
        shared = [x == y != NOT_SHARED for x, y in zip(ids[one], ids[other], strict=False)]
        boundary = shared.index(False)
        assert not any(shared[boundary:])
        assert rows[one][:boundary].endswith("<assistant>"), (one, other)
        assert rows[one][:boundary] == rows[other][:boundary] and common >= boundary
        assert "$" not in rows[one][boundary:common], "no turn that they share is missing"
    assert {len(set(row) - {NOT_SHARED}) for row in ids.values()} == {1, 2}


async def test_branches_of_one_place_do_not_share_what_they_play_after_it() -> None:
    episodes = [episode for episode, _ in await Stage(Writer(num_calls=2), replace(ALWAYS, beam=4)).play_all(4)]
    assert [episode.numbers()["branched"] for episode in episodes] == [0.0, 1.0, 1.0, 1.0]
    for name, episode in zip("abcd", episodes, strict=True):
        said = [message.content for message in episode.messages if message.role == "assistant"]
        assert said == ["", "", f"{name} says 42"] and len(episode.actions) == 3
        assert episode.turn_rewards == {0: 0.5, 1: 0.5} and episode.numbers()["tool_calls"] == 2.0


async def test_a_branch_measures_against_the_first_turn_that_it_took_over() -> None:
    # The third turns have more entropy than the first, and as much as the second, which a branch plays itself.
    policy = Writer(num_calls=2, log_prob=lambda turn: (0.0, -9.0, -9.0)[turn])
    how = Branching(initial=1, probability=0.0, entropy_weight=1.0)
    played = [episode for episode, _ in await Stage(policy, how).play_all(4)]
    assert [episode.numbers()["branched"] for episode in played] == [0.0, 1.0, 1.0, 1.0]
    assert sorted(text(episode).count("call:b1$") for episode in played) == [0, 0, 1, 1], "one is b's"


async def test_the_number_of_samples_is_kept_and_those_left_over_begin_from_the_start() -> None:
    stage = Stage(Writer(num_calls=2), Branching(initial=8))
    episodes = await stage.play_all(16)
    assert len(episodes) == 16 and not any(episode.is_void for episode, _ in episodes)
    branched = sum(int(episode.numbers()["branched"]) for episode, _ in episodes)
    assert 1 <= branched <= 8
    fresh = await Stage(Writer(num_calls=0), ALWAYS).play_all(4)
    assert [text(episode)[0] for episode, _ in fresh] == list("abcd")
    assert all(set(ids) == {NOT_SHARED} for _, ids in fresh), "no tool was called: nothing to branch from"


@pytest.mark.parametrize(("rise", "is_branched"), [(2.5, True), (-2.5, False)])
async def test_the_entropy_after_the_observation_over_that_of_the_first_turn_decides(
    rise: float, is_branched: bool
) -> None:
    # Turns of 8 tokens and more, compared over 8. A rise of 2.5 is certain to branch, one of -2.5 never does.
    policy = Writer(log_prob=lambda turn: -(5.0 + (0 if turn == 0 else rise / 8)) * math.log(VOCAB))
    _, (branch, _) = await Stage(policy, Branching(initial=1)).play_all(2)
    assert bool(branch.numbers()["branched"]) is is_branched


async def test_the_first_entropy_is_that_of_the_same_rollout_and_not_of_one_before() -> None:
    # The second group's turns all have the same entropy: measured against the first group's, they never branch.
    high = Stage(Writer(log_prob=lambda turn: -50.0), Branching(initial=1, entropy_weight=1.0, probability=1.0))
    await high.play_all(2)
    low = Stage(
        Writer(log_prob=lambda turn: -50.0 if turn == 0 else 0.0),
        Branching(initial=1, entropy_weight=1.0, probability=1.0),
    )
    _, (never, _) = await low.play_all(2)
    assert never.numbers()["branched"] == 0.0
    flat = Stage(Writer(log_prob=lambda turn: -0.1), Branching(initial=1, entropy_weight=1.0, probability=0.95))
    _, (branch, _) = await flat.play_all(2)
    assert branch.numbers()["branched"] == 1.0


async def test_a_policy_without_log_probs_never_branches() -> None:
    class Silent(Writer):
        async def generate(self, prompt_ids: Sequence[int], **options: Any) -> Completion:
            return replace(await super().generate(prompt_ids, **options), log_probs=None)

    episodes = await Stage(Silent()).play_all(2)
    assert [episode.numbers()["branched"] for episode, _ in episodes] == [0.0, 0.0]


async def test_an_environment_that_answers_otherwise_refuses_the_branch_and_its_sample_is_played_anew() -> None:
    salts = iter("xyzuvw")
    stage = Stage(salt=lambda: next(salts))
    (source, source_ids), (other, other_ids) = await stage.play_all(2)
    assert text(source).startswith("call:a0$") and text(other).startswith("call:b0$")
    assert (other.numbers()["branched"], other.numbers()["branch_refused"]) == (0.0, 1.0)
    shared = [a == b != NOT_SHARED for a, b in zip(source_ids, other_ids, strict=False)]
    assert not any(shared) and not other.is_void
    assert [env.closed for env in stage.envs] == [1, 1, 1], "the source's, the refused one, and the new one"


@pytest.mark.parametrize("change", ["prompt", "reward", "stop", "hang", "nothing"])
async def test_what_a_replay_must_give_back(change: str) -> None:
    class Changing(Countdown):
        async def start(self) -> tuple[Message, ...]:
            row = await super().start()
            return (Message("user", "another"),) if change == "prompt" and self.is_second else row

        async def step(self, action: Action) -> Observation:
            seen = await super().step(action)
            if not self.is_second or not action.tool_calls:
                return seen
            if change == "hang":
                await asyncio.sleep(3600)
            if change == "nothing":
                return replace(seen, info={"tool_calls": 1, "seconds": random.random()})
            return {"reward": replace(seen, reward=0.7), "stop": replace(seen, stop=StopReason.ENV_DONE)}[change]

    class Changed(Stage):
        def make_env(self, row: EnvRow) -> Countdown:
            env = Changing(row)
            env.is_second = len(self.envs) == 1
            self.envs.append(env)
            return env

    stage = Changed(limits=replace(LIMITS, turn_timeout_s=0.2))
    _, (other, _) = await stage.play_all(2)
    assert bool(other.numbers()["branch_refused"]) is (change != "nothing")
    assert bool(other.numbers()["branched"]) is (change == "nothing")
    assert not other.is_void and all(env.closed == 1 for env in stage.envs)


async def test_an_environment_that_is_in_another_state_than_its_answers_tell_is_refused() -> None:
    class Named(Countdown):
        key = "same"

        def state_key(self) -> str:
            return f"{self.key}{len(self.steps)}"

    class Twins(Stage):
        def make_env(self, row: EnvRow) -> Countdown:
            self.envs.append(Named(row))
            self.envs[-1].key = names[len(self.envs) - 1]  # type: ignore[attr-defined]
            return self.envs[-1]

    for keys, refused in ((["x", "x"], 0.0), (["x", "y", "z"], 1.0)):
        names = list(keys)
        (source, _), (other, _) = await Twins().play_all(2)
        assert other.numbers()["branch_refused"] == refused and other.numbers()["branched"] == 1.0 - refused
        assert source.states == {0: "x0", 1: "x1"} and set(other.states) == {0, 1}


def test_a_branch_takes_over_all_that_a_play_knows() -> None:
    known = {
        *("setup", "row", "request_id", "guidance", "prompt", "_tools"),  # the same by themselves
        "agent",  # a sub-agent's attempt has no branches
        # The tokens; there are no other rows at a branch point.
        *("trajectory", "side_rows", "conversations", "stop", "parent", "rows"),
        "_turn_limits",  # set before every turn
        *("generate_s", "env_s", "error", "label"),  # its own
    }
    assert {item.name for item in fields(Attempt)} == known | set(module._STATE)


async def test_a_failure_of_the_branch_itself_is_played_again_from_the_same_place() -> None:
    failures = iter([RuntimeError("server gone")])
    stage = Stage(Writer(fails=lambda name: next(failures, None) if name == "b" else None))
    (_, source_ids), (branch, branch_ids) = await stage.play_all(2)
    assert branch.retries == 1 and branch.numbers()["branched"] == 1.0
    assert text(branch).startswith("call:a0$\n<tool>1:a0<assistant>b-1 says")
    assert source_ids[:8] == branch_ids[:8] == [0] * 8


async def test_what_a_source_gave_away_before_it_failed_is_not_taken_for_its_own_second_attempt() -> None:
    calls = itertools.count()
    stage = Stage(
        Writer(num_calls=2, fails=lambda name: RuntimeError("gone") if name == "a" and next(calls) == 2 else None)
    )
    (source, source_ids), (branch, branch_ids) = await stage.play_all(2)
    assert source.retries == 1 and text(source).startswith("call:a-10$")
    assert text(branch).startswith("call:a0$\n<tool>1:a0<assistant>call:b1$")
    assert not any(a == b != NOT_SHARED for a, b in zip(source_ids, branch_ids, strict=False))


async def test_a_void_row_shares_nothing() -> None:
    stage = Stage(
        Writer(fails=lambda name: PolicyError("gone") if name.startswith("b") else None),
        limits=replace(LIMITS, max_retries=0),
    )
    _, (void, ids) = await stage.play_all(2)
    assert void.is_void and ids == [NOT_SHARED] * len(void.trajectories[0].response_ids)


async def test_a_conversation_that_was_shortened_gives_no_more_places() -> None:
    stage = Stage(
        Writer(num_calls=3),
        limits=replace(LIMITS, max_response_tokens=70, max_turns=6),
        options={"compaction": Compaction(strategy="drop_observations", keep_last=0, min_room_tokens=20)},
    )
    source, ids = await stage.play("a")
    assert len(source.trajectories) > 1 and [len(i) for i in ids] == [len(t.response_ids) for t in source.trajectories]
    # The entropy rises in the second turn, or in the third, which begins a new row.
    for turn, is_branched in ((1, True), (2, False)):
        stage.policy = Writer(num_calls=3, log_prob=lambda now, turn=turn: -9.0 if now >= turn else 0.0)
        stage.branching = Branching(initial=1, probability=0.0, entropy_weight=1.0)
        played = await asyncio.gather(*map(stage.play, "ab"))
        assert [len(episode.trajectories[0].response_ids) > 0 for episode, _ in played] == [True, True]
        assert [bool(episode.numbers()["branched"]) for episode, _ in played] == [False, is_branched]
        for episode, ids in played:
            assert episode.numbers()["branch_refused"] == 0.0
            assert all(set(row) == {NOT_SHARED} for row in ids[1:]) and len(ids) > 1
            assert [len(row) for row in ids] == [len(t.response_ids) for t in episode.trajectories]


async def test_a_turn_that_begins_with_forced_text_is_no_place_to_branch() -> None:
    class Forced(CharCodec):
        def call_prefix(self, tool: str) -> str:
            return "call:f"

    stage = Stage(options={"exploration": Exploration(epsilon_tool=1.0)})

    class Tool:
        name, schema = "f", {"type": "function"}

    made = episode_setup(stage.policy, LIMITS, **stage.options)
    played = await asyncio.gather(
        *(
            run_branching_episode(
                ROW,
                make_env=lambda row: Countdown(row, tools=(Tool(),)),
                setup=replace(made, codec=Forced()),
                request_id=name,
                branching=ALWAYS,
                group="g",
                vocab_size=VOCAB,
            )
            for name in "ab"
        )
    )
    assert all(episode.numbers()["forced_tokens"] for episode, _ in played)
    assert [episode.numbers()["branched"] for episode, _ in played] == [0.0, 0.0]


# Nobody waits for ever.


async def test_all_begin_when_the_last_sibling_ends_without_having_branched() -> None:
    episodes = await Stage(branching=NEVER).play_all(5)
    assert all(not episode.is_void and not episode.numbers()["branched"] for episode, _ in episodes)


async def test_those_left_over_begin_side_by_side() -> None:
    siblings, most, playing = Siblings(NEVER), 0, 0

    async def member() -> None:
        nonlocal most, playing
        async with siblings.place(timeout_s=10):
            playing += 1
            most = max(most, playing)
            await asyncio.sleep(0.01)
            playing -= 1

    await asyncio.wait_for(asyncio.gather(*(member() for _ in range(5))), 5)
    assert most == 4, "all but the first one"


async def test_siblings_of_a_source_that_fails_or_is_cancelled_go_on() -> None:
    stage = Stage(Writer(fails=lambda name: RuntimeError("gone") if name[0] == "a" else None), branching=ALWAYS)
    episodes = await stage.play_all(3)
    assert [episode.is_void for episode, _ in episodes] == [True, False, False]

    stage = Stage(branching=NEVER, group="h")
    stage.policy.fails = lambda name: None
    hang = asyncio.Event()

    class Hanging(Writer):
        async def generate(self, prompt_ids: Sequence[int], **options: Any) -> Completion:
            if options["request_id"] == "a":
                await hang.wait()
            return await super().generate(prompt_ids, **options)

    stage.policy = Hanging()
    tasks = [asyncio.create_task(stage.play(name)) for name in "abc"]
    await asyncio.sleep(0.02)
    assert len(stage.envs) == 1, "the others wait"
    tasks[1].cancel()
    await asyncio.sleep(0)
    tasks[0].cancel()
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert [type(result) for result in done[:2]] == [asyncio.CancelledError] * 2
    assert isinstance(done[2], tuple) and not done[2][0].is_void
    assert not module._groups


async def test_a_branch_that_is_cancelled_before_it_begins_does_not_count_as_playing() -> None:
    siblings = Siblings(ALWAYS)
    order: list[str] = []

    async def member(name: str, hold: asyncio.Event) -> None:
        async with siblings.place(timeout_s=10):
            order.append(name)
            await hold.wait()

    first, rest = asyncio.Event(), asyncio.Event()
    rest.set()
    tasks = [asyncio.create_task(member(name, hold)) for name, hold in (("a", first), ("b", rest), ("c", rest))]
    await asyncio.sleep(0)
    siblings.begin(None)  # b may begin
    tasks[1].cancel()  # and is cancelled before it does
    first.set()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert order == ["a", "c"] and siblings.num_waiting == 0


async def test_nobody_waits_longer_than_an_episode_may_take() -> None:
    siblings = Siblings(NEVER)
    began: list[str] = []
    second = asyncio.Event()

    async def member(name: str, end: asyncio.Event) -> None:
        async with siblings.place(timeout_s=0.05) as point:
            assert point is None
            began.append(name)
            if name == "b":
                second.set()
            await end.wait()

    ends = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(member(name, end)) for name, end in zip("ab", ends, strict=True)]
    await asyncio.sleep(0)
    assert began == ["a"]
    await asyncio.wait_for(second.wait(), 10)
    assert began == ["a", "b"] and siblings.num_waiting == 0, "while the first one still plays"
    for end in ends:
        end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 5)


@given(
    how=st.lists(st.sampled_from(["play", "fail", "cancel", "error"]), min_size=1, max_size=9),
    initial=st.integers(1, 5),
    beam=st.integers(2, 4),
    seed=st.integers(0, 1000),
)
def test_every_member_ends_whatever_becomes_of_the_others(how: list[str], initial: int, beam: int, seed: int) -> None:
    rng = random.Random(seed)

    async def member(siblings: Siblings, fate: str) -> str:
        async with siblings.place(timeout_s=60):
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
                for _ in range(siblings.num_branches(rise=rng.uniform(-3, 3))):
                    siblings.begin(None)
            if fate == "fail":
                raise PolicyError("gone")
            if fate == "error":
                raise KeyError("x")
        return "played"

    async def play() -> None:
        siblings = Siblings(Branching(initial=initial, beam=beam), seed=seed)
        tasks = [asyncio.create_task(member(siblings, fate)) for fate in how]
        for task, fate in zip(tasks, how, strict=True):
            if fate == "cancel":
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        for fate, result in zip(how, results, strict=True):
            assert fate in ("cancel", "fail", "error") or result == "played"
        assert siblings.num_waiting == 0 and siblings._num_playing == 0

    asyncio.run(play())


# Settings.


def test_branching_is_off_unless_it_is_asked_for() -> None:
    def made(**values: Any) -> LoopSettings:
        return read_loop_settings(values, section="s", max_response_tokens=9, max_context_tokens=9)

    assert made().branching is None and made(branching=None).branching is None
    assert made(branching={}).branching == Branching()
    assert made(branching={"initial": 4}).branching == Branching(initial=4)
    with pytest.raises(ConfigError, match="'beams'"):
        made(branching={"beams": 4})
    with pytest.raises(ConfigError, match=r"s\.guidance"):
        made(branching={}, guidance=True)
