"""Our rewards on episodes of verl's own agent loops: only what the policy sampled is judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from stage import CALL, DATA, SAMPLING, Chat, Servers, row
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_agentic.base.errors import DataError
from verl_agentic.rewards.component import Graded
from verl_agentic.rewards.verl_result import PENDING, PLACE, SAMPLE, from_pending

RUBRIC = {"components": [{"use": "exact_match"}]}
COMPONENTS = """
from verl_agentic.rewards.component import Graded, component


@component(kind="outcome", inline=True)
def seen(sample):
    assert sample.ground_truth == "42" and sample.prompt[-1].content == "Double 21.", sample
    return float(sample.final_answer == "42" and all("42" not in turn.text for turn in sample.turns[:-1]))


@component(inline=True)
def called(sample):
    return Graded(turns={turn.index: 0.5 for turn in sample.turns if turn.calls and "42" in turn.calls[0].result})
"""


THEIRS = """
def score(data_source, solution_str, ground_truth, extra_info):
    assert "agentic_sample" not in extra_info
    return {"score": 0.5, "note": "text"}
"""


class Double(BaseTool):
    """Doubles a number."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return ToolResponse(text=f"<answer>{2 * int(parameters['number'])}</answer>"), 0.0, {}


TOOL = Double(
    {},
    OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": "double",
                "description": "Doubles.",
                "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
            },
        }
    ),
)


class Handle:
    """Stands in for the Ray actor of a reward worker."""

    def __init__(self, manager: Any) -> None:
        self.compute_score = self
        self.manager = manager

    async def remote(self, data: DataProto) -> dict[str, Any]:
        return await self.manager.run_single(data)


def reward_section(**section: Any) -> dict[str, Any]:
    manager = {"name": "rubric", "source": "register", **section.pop("reward_manager", {})}
    return {"reward_manager": manager, "custom_reward_function": {"path": None}, **section}


async def play(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, turns: Sequence[str], *, loop: str, reward: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Returns the row that verl stores of an episode of one of its own loops."""
    tokenizer = chat[0]
    rollout = {"prompt_length": 512, "response_length": 512, "multi_turn": _MULTI_TURN, "full_determinism": False}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": DATA, "reward": reward})
    cls = cast("Any", agent_loop_tq.AgentLoopWorkerTQ).__ray_metadata__.modified_class
    worker = cls.__new__(cls)
    worker.config, worker.tokenizer, worker.processor = config, tokenizer, None
    worker.hf_model_type, worker.dataset_cls = "qwen3", RLHFDataset
    worker.llm_client = Servers(tokenizer, turns)
    worker.tools = [TOOL] if loop == "tool_agent" else []
    worker.distillation_enabled = False
    worker.reward_loop_worker_handles = [Handle(load_reward_manager(config, tokenizer))]
    stored: list[dict[str, Any]] = []

    class Queue:
        async def async_kv_batch_put(self, *, fields: Any, **_: Any) -> None:
            stored.extend(fields)

    monkeypatch.setattr(agent_loop_tq, "tq", Queue())
    monkeypatch.setattr(agent_loop_tq, "list_of_dict_to_tensordict", lambda fields: fields)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    await worker._run_agent_loop(
        {**SAMPLING, "max_tokens": 400}, trajectory, agent_name=loop, trace=False, **row(index=0, **more)
    )
    (columns,) = stored
    return columns


_MULTI_TURN = {
    "format": "hermes",
    "max_user_turns": 4,
    "max_assistant_turns": 4,
    "max_parallel_calls": 1,
    "max_tool_response_length": 256,
    "tool_response_truncate_side": "left",
}


@pytest.mark.parametrize(("said", "score"), [("42", 1.0), ("41", 0.0), ("<think>42</think> 41", 0.0)])
async def test_a_single_turn_is_the_policys_text(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, said: str, score: float
) -> None:
    columns = await play(tiny_chat, monkeypatch, [said], loop="single_turn_agent", reward=reward_section(rubric=RUBRIC))
    assert columns["rm_scores"].sum() == score and columns["response_mask"].any()
    numbers = columns["extra_fields"]["reward_extra_info"]
    assert numbers["acc"] == score == numbers["reward/exact_match"]
    assert all(isinstance(value, int | float) for value in numbers.values())
    assert SAMPLE not in columns["extra_fields"] and columns["extra_fields"][PENDING] is None


@pytest.mark.parametrize(
    ("last", "score"), [("42", 1.0), ("the tool knows", 0.0), ("<think>42</think>", 0.0), (CALL, 0.0)]
)
async def test_of_several_turns_only_sampled_text_is_judged(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, last: str, score: float
) -> None:
    turns = [CALL, last, *["enough"] * 3] if last != CALL else [CALL] * 6
    columns = await play(tiny_chat, monkeypatch, turns, loop="tool_agent", reward=reward_section(rubric=RUBRIC))
    assert not columns["response_mask"].all(), "the tool has answered"
    assert columns["rm_scores"].sum() == score


async def test_calls_results_and_turns_are_known_and_paid_where_they_were_made(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "components.py"
    file.write_text(COMPONENTS)
    rubric = {"components": [{"use": f"{file}:seen"}, {"use": f"{file}:called", "weight": 0.25}]}
    columns = await play(tiny_chat, monkeypatch, [CALL, "42"], loop="tool_agent", reward=reward_section(rubric=rubric))
    mask, rewards = columns["response_mask"].tolist(), columns["rm_scores"].tolist()
    ends = [i for i, m in enumerate(mask) if m and not [*mask, 0][i + 1]]
    assert {i: r for i, r in enumerate(rewards) if r} == {ends[0]: 0.125, ends[1]: 1.0}
    assert columns["turn_ids"].tolist()[ends[0]] == 0 and columns["turn_ids"].tolist()[ends[1]] == 1


@pytest.mark.parametrize("loop", ["single_turn_agent", "tool_agent"])
async def test_rows_wait_for_components_that_see_the_group(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    rubric = {"components": [{"use": "exact_match"}, {"use": "consistency", "kind": "shaping", "weight": 0.2}]}
    columns = await play(tiny_chat, monkeypatch, ["42"], loop=loop, reward=reward_section(rubric=rubric))
    (known, verdicts) = from_pending(columns["extra_fields"][PENDING])
    assert known.final_answer == "42" and verdicts["exact_match"] == Graded(value=1.0)
    assert columns["extra_fields"][PLACE] == "last" and len(columns["turn_ids"]) == len(columns["response_mask"])


@pytest.mark.parametrize("loop", ["single_turn_agent", "tool_agent"])
async def test_a_component_that_fails_voids_the_row(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, loop: str
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(COMPONENTS.replace('"42" and sample', '"43" and sample'))
    rubric = {"components": [{"use": f"{file}:seen"}]}
    columns = await play(tiny_chat, monkeypatch, ["42"], loop=loop, reward=reward_section(rubric=rubric))
    assert not columns["response_mask"].any() and not columns["rm_scores"].any()
    assert columns["extra_fields"]["reward_extra_info"]["void"] == 1.0


@pytest.mark.parametrize(("last", "score"), [("42", 1.0), ("the tool knows", 0.0)])
@pytest.mark.parametrize("function", ["compute_score", "exact_match"])
async def test_reward_functions_under_verls_naive_manager_see_the_same(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, function: str, last: str, score: float
) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text(yaml.safe_dump(RUBRIC))
    is_rubric = function == "compute_score"
    module = "rewards.compute_score" if is_rubric else "graders.functions"
    custom = {
        "path": f"pkg://verl_agentic.{module}",
        "name": function,
        "reward_kwargs": {"rubric": str(path)} if is_rubric else {},
    }
    reward = reward_section(reward_manager={"name": "naive"}, custom_reward_function=custom)
    for loop, turns in (("tool_agent", [CALL, last]), ("single_turn_agent", [last])):
        columns = await play(tiny_chat, monkeypatch, turns, loop=loop, reward=reward)
        assert columns["rm_scores"].sum() == score == columns["extra_fields"]["reward_extra_info"]["acc"]


async def test_an_abstaining_function_voids_the_row(tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    custom = {"path": "pkg://verl_agentic.graders.functions", "name": "exact_match", "reward_kwargs": {}}
    reward = reward_section(reward_manager={"name": "naive"}, custom_reward_function=custom)
    truth = {"reward_model": {"ground_truth": None}}
    columns = await play(tiny_chat, monkeypatch, ["42"], loop="single_turn_agent", reward=reward, **truth)
    assert not columns["response_mask"].any() and "abstained" in columns["extra_fields"]["error"]


async def test_reward_functions_of_others_get_what_verl_gives_them(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "theirs.py"
    file.write_text(THEIRS)
    custom = {"path": str(file), "name": "score"}
    reward = reward_section(reward_manager={"name": "naive"}, custom_reward_function=custom)
    columns = await play(tiny_chat, monkeypatch, [CALL, "42"], loop="tool_agent", reward=reward)
    assert columns["rm_scores"].tolist()[-1] == 0.5 and "turn_ids" not in columns
    assert columns["extra_fields"]["reward_extra_info"]["note"] == "text"


WRITTEN = """
def score(data_source, solution_str, ground_truth, extra_info):
    assert ground_truth == {"day": "2024-01-02"} and extra_info["n"] == {"a": 2**70}, (ground_truth, extra_info)
    assert "extra_json" not in extra_info and "unset" not in extra_info
    return 1.0
"""


@pytest.mark.parametrize("loop", ["single_turn_agent", "tool_agent"])
async def test_a_reward_function_gets_the_row_as_it_was_written(
    tiny_chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loop: str
) -> None:
    file = tmp_path / "written.py"
    file.write_text(WRITTEN)
    reward = reward_section(
        reward_manager={"name": "naive"}, custom_reward_function={"path": str(file), "name": "score"}
    )
    model = {"style": "rule", "ground_truth": '{"day": "2024-01-02"}', "format": "json"}
    extra = {"index": 0, "unset": None, "extra_json": '{"n": {"a": 1180591620717411303424}}'}
    columns = await play(tiny_chat, monkeypatch, ["42"], loop=loop, reward=reward, reward_model=model, extra_info=extra)
    assert columns["rm_scores"].tolist()[-1] == 1.0


def batch(tokenizer: Any, *parts: tuple[str, int], num_turns: int, has_mask: bool = True) -> DataProto:
    """Returns a row as a reward worker gets it, of texts and whether the policy sampled them."""
    ids = [tokenizer.encode(text) for text, _ in parts]
    mask = [sampled for one, (_, sampled) in zip(ids, parts, strict=True) for _ in one]
    responses = torch.tensor([[token for one in ids for token in one] + [0, 0]])
    valid = torch.tensor([[1] * len(mask) + [0, 0]])
    columns = {"responses": responses, "attention_mask": torch.cat([torch.ones(1, 3, dtype=torch.int64), valid], dim=1)}
    if has_mask:
        columns["response_mask"] = torch.tensor([[*mask, 0, 0]])
    arrays = {}
    for key, value in {**row(), "tool_extra_fields": {}, "__num_turns__": num_turns}.items():
        arrays[key] = np.empty(1, dtype=object)
        arrays[key][0] = value
    return DataProto(batch=TensorDict(columns, batch_size=1), non_tensor_batch=arrays)


@pytest.mark.parametrize(
    ("parts", "num_turns", "score"),
    [
        ([("42", 1)], 2, 1.0),
        ([("I call", 1), ("41", 0), ("42", 1)], 4, 1.0),
        ([("I call", 1), ("42", 0), ("I see", 1)], 4, 0.0),
        ([("I call", 1), ("42", 0)], 3, 0.0),
    ],
)
async def test_the_manager_decodes_only_what_a_batch_masks_in(
    tiny_chat: Chat, parts: list[tuple[str, int]], num_turns: int, score: float
) -> None:
    config = OmegaConf.create({"reward": reward_section(rubric=RUBRIC)})
    manager = get_reward_manager_cls("rubric")(config, tiny_chat[0], None)  # type: ignore[arg-type]
    assert (await manager.run_single(batch(tiny_chat[0], *parts, num_turns=num_turns)))["reward_score"] == score
    if num_turns == 2:
        bare = batch(tiny_chat[0], *parts, num_turns=num_turns, has_mask=False)
        assert (await manager.run_single(bare))["reward_score"] == score
    else:
        with pytest.raises(DataError, match="num_turns"):
            await manager.run_single(batch(tiny_chat[0], *parts, num_turns=num_turns, has_mask=False))
