"""Sessions that the environment's solution plays, as verl starts them and stores their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from stage import CALL, ENV, SAMPLING, Chat, Servers, Stage, make_stage, row
from verl.utils import device
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.methods import branching
from verl_agentic.verl import guard
from verl_agentic.verl.replay_buffer.episode_buffer import mean_numbers
from verl_agentic.verl.rollout import agent_loop

_GOLD = """

from verl_agentic.base.types import Message, ToolCall


def gold(row):
    if row.extra.get("how") == "unsolved":
        raise LookupError("no solution is known")

    if row.extra.get("how") == "bare":
        return lambda messages: Message("assistant", r"<answer> \\boxed{42} </answer>", reasoning="Easy.")

    def next_message(messages):
        if messages[-1].role == "tool":
            return Message("assistant", messages[-1].content)
        return Message("assistant", "", tool_calls=(ToolCall("double", {"number": 21}),))

    return next_message
"""
ROLLOUT = {"n": 3, "calculate_log_probs": True}
BRANCHING = {"initial": 1, "probability": 1.0, "entropy_weight": 0.0}


@pytest.fixture
def stage(tmp_path: Path, tiny_chat: Chat) -> Stage:
    stage = make_stage(tmp_path, tiny_chat[0])
    (stage.folder / "__init__.py").write_text(ENV + _GOLD)
    return stage


async def play(
    stage: Stage, session: int, *turns: str, how: str = "", more: dict[str, Any] | None = None, **section: Any
) -> tuple[dict[str, Any], Servers]:
    """Plays one of three sessions, of which the first is external; returns its columns and the servers."""
    servers = Servers(stage.tokenizer, turns)
    loop = stage.loop(servers, rollout=ROLLOUT, **{"external_sessions": 1, **section})
    (output,) = await loop.run(dict(SAMPLING), **row(how, session_id=session, **(more or {})))
    return output.as_dict(), servers


async def test_the_solution_plays_the_first_sessions_and_the_policy_the_others(stage: Stage) -> None:
    external, servers = await play(stage, 0)
    assert not servers.requests, "the policy is not asked"
    encode, eos = stage.tokenizer.encode, stage.tokenizer.eos_token_id
    written = [*encode(CALL), eos, *encode("42"), eos]
    mask = external["response_mask"].bool()
    assert external["responses"][mask].tolist() == written, "the codec of the policy's own actions"
    assert not external["rollout_log_probs"].any()
    own, servers = await play(stage, 1, "41")
    assert servers.requests and own["rollout_log_probs"].any()
    assert [int(columns["is_external"]) for columns in (external, own)] == [1, 0]
    assert [columns["rm_scores"].sum().item() for columns in (external, own)] == [1 - 0.125, -0.125]
    batch = list_of_dict_to_tensordict([external, own])
    assert set(batch.keys()) == set(own) and torch.equal(batch["is_external"], torch.tensor([1, 0]))


async def test_a_greedy_baseline_comes_behind_them(stage: Stage) -> None:
    columns, servers = await play(stage, 3, "41", more={GREEDY_SESSION: 3})
    assert servers.requests and not columns["is_external"]


async def test_nothing_is_forced_on_the_solution(stage: Stage) -> None:
    forced = {"exploration": {"epsilon_tool": 1.0}}
    external, _ = await play(stage, 0, **forced)
    own, _ = await play(stage, 1, "42", "42", **forced)
    forced_tokens = [c["extra_fields"]["reward_extra_info"]["forced_tokens"] for c in (external, own)]
    assert forced_tokens[0] == 0 < forced_tokens[1]


async def test_the_solution_is_no_sibling_that_others_branch_from(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    branched: list[str] = []

    async def play_branching(*args: Any, **kwargs: Any) -> Any:
        branched.append(kwargs["group"])
        return await run_branching_episode(*args, **kwargs)

    run_branching_episode = branching.run_branching_episode
    monkeypatch.setattr(branching, "run_branching_episode", play_branching)
    external, _ = await play(stage, 0, branching=BRANCHING)
    assert not branched and external["shared_ids"].unique().tolist() == [-1]
    own, _ = await play(stage, 1, "42", branching=BRANCHING)
    assert branched == ["u"] and list(own) == list(external)


async def test_validation_is_the_policys_and_has_the_same_columns(stage: Stage) -> None:
    token = agent_loop._is_validation.set(True)
    try:
        validation, servers = await play(stage, 0, "42")
    finally:
        agent_loop._is_validation.reset(token)
    assert servers.requests and not validation["is_external"]
    training, _ = await play(stage, 0)
    assert list(validation) == list(training)
    off = await stage.play("42")
    assert "is_external" not in off.as_dict() and "external" not in off.extra_fields["reward_extra_info"]


async def test_a_rubric_scores_them_like_others(stage: Stage) -> None:
    reward = {"reward_manager": {"name": "rubric"}}
    loop = stage.loop(Servers(stage.tokenizer, []), rollout=ROLLOUT, reward=reward, external_sessions=1)
    (output,) = await loop.run(dict(SAMPLING), **row())
    assert output.reward_score is None and output.sample.final_answer == "42"
    assert output.numbers["external"] == 1.0


def test_metrics_tell_their_share_and_are_of_the_policy() -> None:
    infos = [{"acc": 1.0, "external": 1.0}, {"acc": 0.0, "external": 0.0}, {"acc": 1.0, "external": 0.0}]
    metrics = mean_numbers([{"reward_extra_info": info, "reward_parts": {"brevity": 1.0}} for info in infos])
    assert metrics == {
        "episode/acc": 0.5,
        "episode/external": 1 / 3,
        "episode/reward/brevity": 1.0,
        "episode/episodes": 2.0,
    }


async def test_a_row_without_solution_names_its_environment(stage: Stage) -> None:
    with pytest.raises(DataError, match="solution"):
        await play(stage, 0, how="unsolved")


@pytest.mark.parametrize("demonstration", [[CALL, "<think>\nso</think>\n42"], "<think>\n\nsure</think> 42"])
async def test_a_demonstration_of_the_row_is_trained_as_it_is_written(stage: Stage, demonstration: Any) -> None:
    more = row(session_id=0)
    more["extra_info"] = {**more["extra_info"], "demonstration": demonstration}
    external, servers = await play(stage, 0, more={"extra_info": more["extra_info"]})
    assert not servers.requests and int(external["is_external"]) == 1
    encode, eos = stage.tokenizer.encode, stage.tokenizer.eos_token_id
    texts = [demonstration] if isinstance(demonstration, str) else demonstration
    written = [token for text in texts for token in (*encode(text), eos)]
    assert external["responses"][external["response_mask"].bool()].tolist() == written
    assert external["rm_scores"].sum().item() > 0


@pytest.mark.parametrize("loss", ["rl_plus", "vanilla"])
async def test_a_solution_that_is_the_ground_truth_alone_is_not_imitated(stage: Stage, loss: str) -> None:
    more = {"extra_info": {**row("bare", session_id=0)["extra_info"], "demonstration": "21 twice is 42."}}
    await play(stage, 0, loss=loss, more=more)
    await play(stage, 0, loss=loss)  # with a call of the tool
    if loss == "vanilla":  # it learns from none as such
        await play(stage, 0, how="bare", loss=loss)
        return
    with pytest.raises(DataError, match=r"got '42'; give the rows .* extra_info\.demonstration"):
        await play(stage, 0, how="bare", loss=loss)


@pytest.mark.parametrize("demonstration", ["", " ", [], [""], 7, ["a", None], {"role": "assistant"}])
async def test_a_demonstration_that_is_no_text_names_its_column(stage: Stage, demonstration: Any) -> None:
    more = {"extra_info": {**row(session_id=0)["extra_info"], "demonstration": demonstration}}
    with pytest.raises(DataError, match=r"extra_info\.demonstration"):
        await play(stage, 0, more=more)


async def test_an_environment_without_solutions_is_refused(stage: Stage) -> None:
    (stage.folder / "__init__.py").write_text(ENV)
    with pytest.raises(Exception, match=r"gold\(row\)"):
        await play(stage, 0)


@pytest.mark.parametrize(
    ("count", "rollout", "correction", "message"),
    [
        (3, ROLLOUT, {}, "3 of 3"),
        (1, ROLLOUT, {"rollout_is": "token"}, "algorithm.rollout_correction"),
        (1, ROLLOUT, {"bypass_mode": True}, "bypass_mode"),
        (-1, ROLLOUT, {}, "-1"),
    ],
)
async def test_what_cannot_work_is_refused(
    stage: Stage, count: int, rollout: dict[str, Any], correction: dict[str, Any], message: str
) -> None:
    algorithm = {"rollout_correction": correction}
    with pytest.raises(Exception, match=message) as caught:
        stage.loop(Servers(stage.tokenizer, []), rollout=rollout, algorithm=algorithm, external_sessions=count)
    assert isinstance(caught.value, ConfigError) or isinstance(caught.value.__cause__, ConfigError)


def test_a_run_that_cannot_work_stops_before_anything_is_started(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(device, "auto_set_device", started.append)
    guard.install_check(lambda names: None)
    custom = {"agentic": {"env": str(stage.folder), "external_sessions": 3}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": 3, "custom": custom}}})
    with pytest.raises(ConfigError, match="session"):
        device.auto_set_device(config)
    assert not started
    config.actor_rollout_ref.rollout.n = 4
    device.auto_set_device(config)
    assert started
