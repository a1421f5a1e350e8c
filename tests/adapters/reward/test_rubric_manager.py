"""A rubric under verl: reward manager, reward function and library give one number, and it lies where it was earned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from stage import CALL, SAMPLING, Chat, Servers, Stage, make_stage, row
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import get_custom_reward_fn

import verl_agentic.verl.replay_buffer.episode_buffer as replay_buffer
import verl_agentic.verl.reward.rubric_manager  # noqa: F401
from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.writer import log_writer
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import PENDING
from verl_agentic.verl.reward import verl_scores

COMPONENTS = """
from verl_agentic.rewards.component import Graded, component


@component(kind="outcome", inline=True)
def right(sample):
    return float(sample.final_answer == sample.ground_truth)


@component(inline=True)
def called(sample):
    return Graded(turns={turn.index: 0.5 for turn in sample.turns if turn.calls})


@component(inline=True)
def broken(sample):
    raise KeyError("score")
"""


@pytest.fixture
def stage(tmp_path: Path, tiny_chat: Chat) -> Stage:
    return make_stage(tmp_path, tiny_chat[0])


@pytest.fixture
def entries(tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "components.py"
    file.write_text(COMPONENTS)
    return [{"use": f"{file}:right"}, {"use": f"{file}:called", "weight": 0.25, "name": "tool"}]


def manager_config(rubric: Any) -> dict[str, Any]:
    return {"reward_manager": {"name": "rubric"}, "custom_reward_function": {"path": None}, "rubric": rubric}


def manager(rubric: Any) -> Any:
    config = OmegaConf.create({"reward": manager_config(rubric)})
    return get_reward_manager_cls("rubric")(config, None, None)  # type: ignore[arg-type]


def to_data(outputs: list[Any], kwargs: dict[str, Any]) -> DataProto:
    """Returns what verl's agent loop worker hands to a reward worker."""
    responses = torch.tensor([outputs[-1].response_ids])
    arrays = {}
    for key, value in {**kwargs, "tool_extra_fields": outputs[-1].extra_fields}.items():
        arrays[key] = np.empty(1, dtype=object)
        arrays[key][0] = value
    batch = TensorDict({"responses": responses, "attention_mask": torch.ones_like(responses)}, batch_size=1)
    return DataProto(batch=batch, non_tensor_batch=arrays)


async def play(stage: Stage, rubric: dict[str, Any], *turns: str, how: str = "", **section: Any) -> Any:
    """Returns an episode's row as verl stores it, after the worker of its loop has scored it."""
    loop = stage.loop(Servers(stage.tokenizer, turns), reward=manager_config({}), **section)
    outputs = await loop.run(dict(SAMPLING), **row(how))
    worker = SimpleNamespace(
        config=OmegaConf.create({"reward": manager_config(rubric)}), reward_loop_worker_handles=["verl's"]
    )

    async def refuse(self: Any, outputs: list[Any], kwargs: Any) -> None:
        assert outputs[-1].reward_score is not None, "verl's reward worker was asked"

    await verl_scores._score_rows(refuse, worker, outputs, row(how))
    return outputs[-1]


async def test_the_score_lies_on_the_tokens_that_earned_it_and_every_part_is_a_number(
    stage: Stage, entries: list[dict[str, Any]]
) -> None:
    output = await play(stage, {"components": entries}, CALL, "42", env_config={"bonus": 0.5})
    columns = output.as_dict()
    ends = [i for i, mask in enumerate(output.response_mask) if mask and not [*output.response_mask, 0][i + 1]]
    # The environment pays 0.5 a turn; the call earns 0.25 * 0.5 in its turn, the right answer 1 at the end.
    assert {i: r for i, r in enumerate(columns["rm_scores"].tolist()) if r} == {ends[0]: 0.625, ends[1]: 1.5}
    assert output.reward_score == 1.125 and output.metrics.compute_score > 0
    numbers = columns["extra_fields"]["reward_extra_info"]
    assert (numbers["acc"], numbers["reward/tool"], numbers["weighted/tool"]) == (1.0, 0.5, 0.125)
    assert numbers["num_turns"] == 2.0 and numbers["void"] == 0.0, "the loop's own numbers stay"
    assert all(isinstance(value, int | float) for value in numbers.values())
    assert columns["extra_fields"][PENDING] is None, "no record is stored"


async def test_tool_output_earns_nothing(stage: Stage, entries: list[dict[str, Any]]) -> None:
    # The tool answers 42, the policy says something else.
    output = await play(stage, {"components": entries}, CALL, "the tool knows")
    assert output.reward_score == 0.125 and output.extra_fields["reward_extra_info"]["acc"] == 0.0


async def test_loop_function_and_library_agree(stage: Stage, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    rubric = {"components": entries}
    path = tmp_path / "rubric.yaml"
    path.write_text(yaml.safe_dump({"rubric": rubric}))
    kwargs = {"path": "pkg://verl_agentic.rewards.compute_score", "name": "compute_score"}
    config = OmegaConf.create(
        {"reward": {"custom_reward_function": {**kwargs, "reward_kwargs": {"rubric": str(path)}}}}
    )
    naive = NaiveRewardManager(config, stage.tokenizer, get_custom_reward_fn(config))
    for turns in ((CALL, "42"), ("42",), (CALL, "41")):
        loop = stage.loop(Servers(stage.tokenizer, turns), reward=config.reward)
        (output,) = await loop.run(dict(SAMPLING), **row())
        by_library = await Scorer(Rubric.from_file(path)).score(output.sample)
        by_loop = await play(stage, rubric, *turns)

        async def ask_worker(self: Any, outputs: list[Any], kwargs: Any) -> None:
            result = await naive.run_single(to_data(outputs, row()))
            outputs[-1].reward_score = result["reward_score"]
            outputs[-1].extra_fields["reward_extra_info"] = result["reward_extra_info"]

        worker = SimpleNamespace(config=config, reward_loop_worker_handles=["verl's"])
        await verl_scores._score_rows(ask_worker, worker, [output], row())
        assert by_loop.reward_score == output.reward_score == by_library.total
        (a, b) = (one.as_dict() for one in (by_loop, output))
        assert a["rm_scores"].tolist() == b["rm_scores"].tolist() and "agentic_sample" not in b["extra_fields"]
        infos = [one["extra_fields"]["reward_extra_info"] for one in (a, b)]
        timings = {name for name in infos[0] if name.endswith("_s")}
        assert [{k: v for k, v in info.items() if k not in timings} for info in infos] == [
            {k: v for k, v in infos[0].items() if k not in timings}
        ] * 2


async def test_a_failing_component_makes_the_row_void(stage: Stage, entries: list[dict[str, Any]]) -> None:
    broken = {"use": entries[0]["use"].replace(":right", ":broken"), "weight": 0.1}
    output = await play(stage, {"components": [*entries, broken]}, CALL, "42")
    columns = output.as_dict()
    assert not columns["response_mask"].any() and not columns["rm_scores"].any()
    assert columns["extra_fields"]["reward_extra_info"]["void"] == 1.0
    assert "KeyError: 'score'" in columns["extra_fields"]["error"]


async def test_or_stops_the_run_at_the_trainer(stage: Stage, entries: list[dict[str, Any]]) -> None:
    broken = {"use": entries[0]["use"].replace(":right", ":broken"), "weight": 0.1}
    output = await play(stage, {"components": [*entries, broken], "on_error": "stop"}, CALL, "42")
    stored = output.as_dict()["extra_fields"]
    with pytest.raises(ScoringError, match="'u/0'"):
        replay_buffer._stop_when_asked([{"reward_extra_info": {"acc": 1.0}}, stored])


@pytest.mark.parametrize("place", ["side", "earlier", "last"])
async def test_each_row_of_an_episode_is_paid_its_own_turns_and_a_sub_agents_none(
    stage: Stage, entries: list[dict[str, Any]], place: str
) -> None:
    output = await play(stage, {"components": entries}, CALL, "42")
    output.place = place
    # The call earned 0.125 in its turn; the outcome 1 lies in the last row alone.
    expected = {"side": 0.0, "earlier": 0.125, "last": 1.125}
    assert output.as_dict()["rm_scores"].sum().item() == expected[place]


async def test_a_reward_function_of_the_users_own_may_tell_texts_too(stage: Stage) -> None:
    loop = stage.loop(Servers(stage.tokenizer, ("42",)), reward=manager_config({}))
    (output,) = await loop.run(dict(SAMPLING), **row())
    output.reward_score, output.extra_fields["reward_extra_info"] = 0.5, {"score": 0.5, "pred": "42"}
    columns = output.as_dict()
    numbers = columns["extra_fields"]["reward_extra_info"]
    assert columns["rm_scores"].sum() == 0.5 and numbers["acc"] == 0.5 and "pred" not in numbers


async def test_a_void_episode_is_not_scored(stage: Stage, entries: list[dict[str, Any]]) -> None:
    output = await play(stage, {"components": entries}, CALL, how="raise")
    assert output.scored is None and output.reward_score == 0.0
    assert not output.as_dict()["response_mask"].any()


async def test_rows_of_all_kinds_have_the_same_columns(stage: Stage, entries: list[dict[str, Any]]) -> None:
    scored = await play(stage, {"components": entries}, CALL, "42")
    void = await play(stage, {"components": entries}, CALL, how="raise")
    assert list(scored.as_dict()) == list(void.as_dict())
    assert list(scored.as_dict()["extra_fields"]) == list(void.as_dict()["extra_fields"])


@pytest.mark.parametrize(
    ("rubric", "says"),
    [
        (None, "reward.rubric"),
        ({"components": [{"use": "nothing"}]}, "'nothing'"),
        ({"weights": {}}, "'weights'"),
        ("no/such.yaml", "'no/such.yaml'"),
    ],
)
def test_a_rubric_that_cannot_work_is_refused_when_the_worker_starts(rubric: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        manager(rubric)


async def test_a_stored_episode_has_the_score_of_the_rubric(
    stage: Stage, entries: list[dict[str, Any]], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"dir": str(tmp_path / "run")}
    output = await play(stage, {"components": entries}, CALL, "42", log=options)
    output.as_dict()
    log_writer("trajectories", LogOptions(**options)).close()
    (stored,) = read_samples(tmp_path)
    assert stored.score is not None and stored.score["score"] == output.reward_score == 1.125
    assert (stored.score["acc"], stored.score["weighted/tool"]) == (1.0, 0.125)
    again = await Scorer(Rubric.from_mapping({"components": entries})).score(stored.sample)
    assert again.total == 1.125, "a stored trajectory is scored as it was"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"reward_model": {"enable": True}}, "reward.reward_model.enable"),
        ({"custom_reward_function": {"path": "f.py"}}, "custom_reward_function.path"),
    ],
)
def test_what_verl_would_score_by_instead_is_refused(
    entries: list[dict[str, Any]], other: dict[str, Any], says: str
) -> None:
    config = OmegaConf.create({"reward": {**manager_config({"components": entries}), **other}})
    with pytest.raises(ConfigError, match=says):
        get_reward_manager_cls("rubric")(config, None, None)  # type: ignore[arg-type]
