"""Tree search: attempts at a task share states, return to the turns that succeed, and become pairs of steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import END, ROW, CharTokenizer, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.types import Message
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.circuit_breaker import CircuitBreaker
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.evaluation_log import EvaluationLog
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, PolicyBackend, attempt_runner, attempts, evaluate
from verl_agentic.evaluate.policies.tree_search import (
    SearchBranch,
    SearchTree,
    TreeSearchPolicy,
    TreeSettings,
    ucb_score,
)
from verl_agentic.evaluate.policy_backends import tree_backends
from verl_agentic.log.files.record_files import numbered_records

LIMITS = EpisodeLimits(max_response_tokens=200, max_context_tokens=300, max_turns=4, max_retries=0)


class Varied:
    """Samples `texts` in turn at each state; `after_call` at states with an observation."""

    def __init__(self, *texts: str, after_call: Sequence[str] = ()) -> None:
        self.texts, self.after_call, self.requests = texts, after_call, list[str]()

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        state = decode(prompt_ids)
        texts = self.after_call if self.after_call and "<tool>" in state else self.texts
        text = texts[self.requests.count(state) % len(texts)]
        self.requests.append(state)
        await asyncio.sleep(0)
        return Completion(token_ids=[*encode(text), END], log_probs=None, finish_reason="stop")


def make_policy(policy: Varied, tree: SearchTree) -> TreeSearchPolicy:
    return TreeSearchPolicy(policies=[policy] * tree.settings.width, tokenizer=CharTokenizer(), tree=tree)


async def attempt(policy: Varied, tree: SearchTree, make_env: Any = FakeEnv) -> Episode:
    search = make_policy(policy, tree)
    episode = await run_episode(ROW, make_env=make_env, setup=episode_setup(search, LIMITS), request_id="r")
    search.finish(episode)
    return episode


def branches(tree: SearchTree, *, at: str = "<user>question<assistant>") -> dict[str, SearchBranch]:
    state = tree._states[tuple(encode(at))]
    return {decode(branch.completion.token_ids): branch for branch in state.branches}


def test_the_score_is_ucb1_with_a_critique() -> None:
    completion = Completion(token_ids=(1,), log_probs=None, finish_reason="stop")
    branch = SearchBranch(completion=completion, critique=0.8, visits=2, outcomes=[1.0, 0.0])
    bonus = math.sqrt(math.log(9) / 3)
    assert ucb_score(branch, visits=9, weight=0.25, exploration=2.0) == pytest.approx(
        0.25 * 0.8 + 0.75 * 0.5 + 2 * bonus
    )
    branch.critique = None
    assert ucb_score(branch, visits=9, weight=0.25, exploration=0.0) == 0.5
    branch.outcomes, branch.critique = [], 0.8
    assert ucb_score(branch, visits=9, weight=0.25, exploration=0.0) == pytest.approx(0.8)


async def test_attempts_return_to_the_turn_that_succeeds_and_a_state_is_expanded_once() -> None:
    policy, tree = Varied("41", "42", "43", "43"), SearchTree(TreeSettings(width=3, exploration=1.0))
    outcomes = [(await attempt(policy, tree)).reward.outcome for _ in range(20)]
    root = branches(tree)
    assert list(root) == ["41$", "42$", "43$"] and len(policy.requests) == 3
    assert sum(branch.visits for branch in root.values()) == 20
    assert root["42$"].visits > 10 and sum(outcomes) == root["42$"].visits
    assert {text: set(branch.outcomes) for text, branch in root.items()} == {"41$": {0.0}, "42$": {1.0}, "43$": {0.0}}


async def test_outcomes_are_backed_up_to_all_turns_of_the_path() -> None:
    policy = Varied("43", "call:x", after_call=("43", "42"))
    tree = SearchTree(TreeSettings(width=2, exploration=1.0))
    episodes = [await attempt(policy, tree) for _ in range(30)]
    root, below = branches(tree), branches(tree, at="<user>question<assistant>call:x$\n<tool>42<assistant>")
    assert set(root) == {"43$", "call:x$"} and set(below) == {"43$", "42$"}
    outcomes = [episode.reward.outcome for episode in episodes if episode.actions[0].tool_calls]
    assert root["call:x$"].outcomes == outcomes and len(outcomes) == sum(branch.visits for branch in below.values())
    assert below["42$"].outcomes == [1.0] * below["42$"].visits and below["42$"].visits > below["43$"].visits > 0
    assert root["call:x$"].visits > 20, "the good turn is the second one of the path"


async def test_the_critic_orders_turns_without_outcomes() -> None:
    asked: list[tuple[str, str]] = []

    async def critic(messages: Sequence[Message], text: str) -> float:
        asked.append((messages[-1].content, text))
        return {"41$": 0.1, "43$": 0.5, "42$": 0.9}[text]

    policy, tree = Varied("41", "43", "42"), SearchTree(TreeSettings(width=3, exploration=0.0), critic)
    answers = [(await attempt(policy, tree)).actions[-1].content for _ in range(3)]
    assert answers == ["41", "42", "42"], "the first visit is a rollout"
    assert asked == [("question", "41$"), ("question", "43$"), ("question", "42$")]


@pytest.mark.parametrize("value", [float("nan"), "high"])
async def test_a_critic_that_fails_voids_the_episode(value: Any) -> None:
    tree = SearchTree(TreeSettings(), lambda messages, text: value)
    policy = Varied("41", "42")
    assert not (await attempt(policy, tree)).is_void
    episode = await attempt(policy, tree)
    assert episode.is_void and "the critic" in str(episode.error)


async def test_void_episodes_leave_no_outcome_and_no_visit() -> None:
    class Broken(FakeEnv):
        async def score(self, transcript: Any) -> Any:
            raise EnvError("gone")

    policy, tree = Varied("42", "41"), SearchTree(TreeSettings(width=2))
    assert (await attempt(policy, tree, Broken)).is_void
    (branch,) = branches(tree).values()
    assert (branch.visits, branch.outcomes) == (0, [])


async def test_an_attempt_that_is_repeated_after_a_failure_counts_once() -> None:
    failures = iter([True, False])

    class Unsteady(FakeEnv):
        async def step(self, action: Any) -> Any:
            if next(failures, False):
                raise EnvError("gone")
            return await super().step(action)

    policy, tree = Varied("41", "42"), SearchTree(TreeSettings(width=2, exploration=1.0))
    search = make_policy(policy, tree)
    limits = replace(LIMITS, max_retries=1, retry_wait_s=0.0)
    make_env: Any = Unsteady
    episode = await run_episode(ROW, make_env=make_env, setup=episode_setup(search, limits), request_id="r")
    search.finish(episode)
    assert episode.retries == 1 and not episode.is_void
    root = branches(tree).values()
    assert sum(branch.visits for branch in root) == sum(len(branch.outcomes) for branch in root) == 1


def test_the_weight_of_a_critic_needs_a_critic() -> None:
    assert TreeSettings(weight=0.2, q="critic.py:critic").weight == 0.2
    with pytest.raises(ConfigError, match="without q"):
        TreeSettings(weight=0.2)


async def test_parallel_attempts_share_one_expansion_and_spread_out() -> None:
    policy, tree = Varied("41", "43", "44", "45"), SearchTree(TreeSettings(width=4, exploration=1.0))
    episodes = await asyncio.gather(*(attempt(policy, tree) for _ in range(4)))
    assert len(policy.requests) == 4 and len({episode.actions[-1].content for episode in episodes}) == 4


def test_attempts_at_one_task_share_a_tree_and_tasks_with_equal_prompts_do_not() -> None:
    make_backend = tree_backends(TreeSettings(width=2))
    rows = [EnvRow(prompt=(Message("user", "pull an arm"),), ground_truth=arm) for arm in ("1", "2")]
    backend = PolicyBackend(setup=episode_setup(Varied("1")), usage={})
    policies: list[Any] = [make_backend(attempt, [backend] * 2).setup.policy for attempt in attempts(rows, 2)]
    assert policies[0].tree is policies[2].tree is not policies[1].tree is policies[3].tree


async def test_an_evaluation_with_a_tree_becomes_pairs_of_steps(tmp_path: Path) -> None:
    policy, make_backend = Varied("41", "42", "43"), tree_backends(TreeSettings(width=3, exploration=0.5))

    def backend_for(attempt: EvaluationAttempt) -> PolicyBackend:
        backend = PolicyBackend(setup=episode_setup(policy, LIMITS), usage={})
        return make_backend(attempt, [backend] * 3)

    make_env: Any = FakeEnv
    rows = [EnvRow(prompt=(Message("user", text),), ground_truth="42") for text in ("a", "b")]
    log = EvaluationLog(tmp_path / "run", {"env": "fake"})
    try:
        await evaluate(
            attempts(rows, 16),
            run_attempt=attempt_runner(make_env, backend_for),
            log=log,
            max_concurrent=1,
            breaker=CircuitBreaker(),
        )
    finally:
        log.close()
    assert len(policy.requests) == 6, "each task has its own tree"
    options = ExportOptions(shape="pairs", by="step", gap=0.3, continuations=1)
    export_run(tmp_path / "run", tmp_path / "pairs.jsonl", options)
    pairs = [pair for _, pair in numbered_records(tmp_path / "pairs.jsonl")]
    assert [decode(pair["prompt_ids"]) for pair in pairs] == ["<user>a<assistant>", "<user>b<assistant>"]
    for pair in pairs:
        assert (decode(pair["chosen_ids"]), pair["chosen_value"], pair["rejected_value"]) == ("42$", 1.0, 0.0)
