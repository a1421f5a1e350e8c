"""Our episode as a verl agent loop: what verl gets for every row, void ones included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stage import CALL, SAMPLING, Chat, Servers, Stage, make_stage, row
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap, _agent_loop_registry
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import StopReason
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.reader import RunLog
from verl_agentic.log.writer import log_writer
from verl_agentic.verl.rollout.agent_loop import instantiate_loop


@pytest.fixture
def stage(tmp_path: Path, tiny_chat: Chat) -> Stage:
    return make_stage(tmp_path, tiny_chat[0])


async def test_ids_masks_log_probs_turns_and_rewards_lie_where_the_policy_wrote(stage: Stage) -> None:
    output = await stage.play(CALL, "42", env_config={"bonus": 0.25})
    encode, eos = stage.tokenizer.encode, stage.tokenizer.eos_token_id
    first, last = [*encode(CALL), eos], [*encode("42"), eos]
    seen = encode("\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    assert stage.tokenizer.decode(output.prompt_ids) == (
        "<|im_start|>system\ndouble(number): Doubles.<|im_end|>\n"
        "<|im_start|>user\nDouble 21.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert output.response_ids == first + seen + last
    assert output.response_mask == [1] * len(first) + [0] * len(seen) + [1] * len(last)
    assert output.turn_ids == [0] * (len(first) + len(seen)) + [1] * len(last)
    assert output.response_logprobs == [
        *(-1.0 - i / 100 for i in range(len(first))),
        *[0.0] * len(seen),
        *(-2.0 - i / 100 for i in range(len(last))),
    ]
    # Each turn earns 0.25; the outcome 1 and the shaping term -0.125 go to the last token.
    paid = {i: r for i, r in enumerate(output.token_rewards) if r}
    assert paid == {len(first) - 1: 0.25, len(output.response_ids) - 1: 0.25 + 1 - 0.125}
    assert output.reward_score == 0.875
    assert output.num_turns == 4  # user, assistant, tool, assistant


async def test_the_stored_columns_are_tensors_of_the_same_length(stage: Stage) -> None:
    output = await stage.play(CALL, "42", env_config={"bonus": 0.25})
    columns = output.as_dict()
    length = len(output.response_ids)
    names = {"responses", "response_mask", "rollout_log_probs", "rm_scores", "turn_ids"}
    assert {name: columns[name].shape for name in names} == dict.fromkeys(names, (length,))
    assert columns["rm_scores"].dtype == torch.float32
    assert columns["rm_scores"].tolist() == output.token_rewards, "verl's own would be the outcome alone, at the end"
    assert columns["rm_scores"].sum().item() == 2 * 0.25 + output.reward_score
    segments = columns["extra_fields"]["segments"]
    assert [s[2:] for s in segments] == [["model", 0], ["tool", 0], ["model", 1]]
    assert [s[0] for s in segments] == [0] + [s[1] for s in segments[:-1]] and segments[-1][1] == length
    assert json.loads(json.dumps(columns["extra_fields"])) == columns["extra_fields"], "plain data only"


HEALTHY: dict[str, Any] = {"turns": (CALL, "42")}
KINDS: dict[str, tuple[dict[str, Any], StopReason]] = {
    "answered": ({"turns": (CALL, "42")}, StopReason.ANSWERED),
    "cut": ({"turns": (CALL, "42"), "limits": {"max_turn_tokens": 4}}, StopReason.MAX_TOKENS),
    "raises": ({"turns": (CALL,), "how": "raise"}, StopReason.INFRA_ERROR),
    "hangs": ({"turns": (CALL,), "how": "hang"}, StopReason.TIMEOUT),
    "no start": ({"turns": (CALL,), "how": "no start"}, StopReason.INFRA_ERROR),
}


async def test_every_row_has_the_same_columns_and_keys_so_that_verl_can_batch_them(stage: Stage) -> None:
    rows = []
    for kwargs, reason in KINDS.values():
        output = await stage.play(*kwargs["turns"], **{k: v for k, v in kwargs.items() if k != "turns"})
        assert output.extra_fields["stop_reason"] == reason.value
        rows.append(output.as_dict())
    first = rows[0]
    for other in rows[1:]:
        assert list(other) == list(first)
        assert list(other["extra_fields"]) == list(first["extra_fields"])
        assert list(other["extra_fields"]["reward_extra_info"]) == list(first["extra_fields"]["reward_extra_info"])
        assert {k: v.dtype for k, v in other.items() if isinstance(v, torch.Tensor)} == {
            k: v.dtype for k, v in first.items() if isinstance(v, torch.Tensor)
        }
    batch = list_of_dict_to_tensordict(rows)
    assert set(batch.keys()) == set(first)
    # verl's metrics turn the versions into integers, which None would not survive.
    for key in ("min_global_steps", "max_global_steps"):
        assert np.array([r["extra_fields"][key] for r in rows], dtype=int).shape == (len(rows),)


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["raise", "hang", "no start"])
async def test_a_failed_environment_gives_a_void_row_and_not_a_reward(stage: Stage, how: str) -> None:
    output = await stage.play(CALL, how=how, env_config={"bonus": 0.25})
    assert output.response_ids and not any(output.response_mask)
    assert output.token_rewards == [0.0] * len(output.response_ids) and output.reward_score == 0.0
    assert output.extra_fields["reward_extra_info"]["void"] == 1.0
    assert {env.closed for env in stage.envs()} == {1}  # that of the retry, too


async def test_siblings_of_a_hanging_environment_go_on_and_every_environment_is_closed_once(stage: Stage) -> None:
    loops = [stage.loop(Servers(stage.tokenizer, [CALL, "42"])) for _ in range(4)]
    hows = ["", "hang", "raise", ""]
    played = asyncio.gather(*(x.run(dict(SAMPLING), **row(how)) for x, how in zip(loops, hows, strict=True)))
    outputs = [output for (output,) in await asyncio.wait_for(played, 10)]
    assert [o.reward_score for o in outputs] == [0.875, 0.0, 0.0, 0.875]
    assert [env.closed for env in stage.envs()] == [1] * 5  # one of them began anew


async def test_all_rows_of_a_worker_get_one_loop_and_those_of_another_run_another(stage: Stage) -> None:
    def parts(**changes: Any) -> dict[str, Any]:
        run = changes.get("trainer_config", config)
        wrapped = {"trainer_config": DictConfigWrap(run), "data_config": DictConfigWrap(config.data)}
        return {**known, "server_manager": changes.get("server", servers), **wrapped, "tools": ToolListWrap(tools)}

    servers, tools, config = Servers(stage.tokenizer, []), [], stage.loop(Servers(stage.tokenizer, [])).config
    known = {"tokenizer": stage.tokenizer, "processor": None, "hf_model_type": "qwen3", "dataset_cls": RLHFDataset}
    entry, named = _agent_loop_registry["env_agent"], {**_agent_loop_registry["env_agent"], "limits": {"max_turns": 2}}
    own = instantiate_loop(entry, **parts())
    assert instantiate_loop(entry, **parts()) is own
    assert instantiate_loop(named, **parts()) is instantiate_loop(named, **parts()) is not own
    assert instantiate_loop(entry, **parts()) is own, "each entry of the registry has its own"
    for change in ({"server": Servers(stage.tokenizer, [])}, {"trainer_config": config.copy()}):
        assert instantiate_loop(entry, **parts(**change)) is not instantiate_loop(entry, **parts())

    async def elsewhere() -> Any:
        return instantiate_loop(entry, **parts())

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is not instantiate_loop(entry, **parts())


async def test_weights_versions_span_the_turns_and_a_void_row_has_those_of_its_step(stage: Stage) -> None:
    def versions(output: Any) -> tuple[Any, Any]:
        return output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]

    assert versions(await stage.play(CALL, "42")) == (3, 5)
    assert versions(await stage.play(CALL, how="no start")) == (6, 6)
    assert versions(await stage.play(CALL, how="no start", global_steps=torch.tensor(7))) == (6, 6)
    assert versions(await stage.play(CALL, how="no start", global_steps=0)) == (0, 0)


async def test_all_turns_of_an_episode_share_a_request_id_and_carry_the_sampling_parameters(stage: Stage) -> None:
    servers = Servers(stage.tokenizer, [CALL, "42"])
    loop = stage.loop(servers)
    await loop.run(dict(SAMPLING), **row())
    await loop.run(dict(SAMPLING), **row())
    ids = [request["request_id"] for request in servers.requests]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    first, second = (request["sampling_params"] for request in servers.requests[:2])
    assert first == {**SAMPLING, "max_tokens": 256}
    used = len(servers.requests[1]["prompt_ids"]) - len(servers.requests[0]["prompt_ids"])
    assert second["max_tokens"] == 256 - used


async def test_log_probs_are_stored_only_when_they_were_asked_for(stage: Stage) -> None:
    output = await stage.play("42", sampling={"temperature": 1.0, "logprobs": False})
    assert "rollout_log_probs" not in output.as_dict()


@pytest.mark.parametrize(
    ("extra", "stop_reason", "reason"),
    [
        ({"finish_reason": "length"}, "completed", StopReason.MAX_TOKENS),
        ({"finish_reason": "stop"}, "completed", StopReason.ANSWERED),
        ({}, "completed", StopReason.ANSWERED),
        ({}, "aborted", StopReason.CANCELLED),
        ({}, "abort", StopReason.CANCELLED),
    ],
)
async def test_the_servers_finish_reasons_are_understood(
    stage: Stage, extra: dict[str, Any], stop_reason: str, reason: StopReason
) -> None:
    servers = Servers(stage.tokenizer, ["42"], **extra)
    servers.stop_reason = stop_reason
    (output,) = await stage.loop(servers).run(dict(SAMPLING), **row())
    assert output.extra_fields["stop_reason"] == reason.value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s, x: s.loop(x, enviroment="python_math"), "'enviroment'"),
        (lambda s, x: s.loop(x, limits={"max_turn": 3}), "'max_turn'"),
        (lambda s, x: s.loop(x, limits={"max_turns": 0}), "agentic.limits.max_turns"),
        (lambda s, x: s.loop(x, processor=s.tokenizer), "env_agent"),
    ],
    ids=["key", "limit", "value", "multimodal"],
)
async def test_what_the_configuration_cannot_mean_is_refused_when_the_loop_is_made(
    stage: Stage, make: Callable[[Stage, Servers], Any], message: str
) -> None:
    with pytest.raises(Exception, match=message) as caught:
        make(stage, Servers(stage.tokenizer, []))
    assert isinstance(caught.value, ConfigError) or isinstance(caught.value.__cause__, ConfigError)


async def test_the_environment_comes_from_the_configuration_or_the_row_and_never_from_two(stage: Stage) -> None:
    servers = Servers(stage.tokenizer, ["42"] * 3)
    named = row()
    named["extra_info"] = {"env": str(stage.folder)}
    for env, played in ((None, named), (str(stage.folder), row()), (f"{stage.folder}/", named)):
        (output,) = await stage.loop(servers, env=env).run(dict(SAMPLING), **played)
        assert output.reward_score == 0.875
    for env, played, message in (
        ("python_math", named, r"got extra_info.env='.*' and agentic.env='python_math'; write the rows again"),
        ("no_such_env", row(), "unknown environment, got 'no_such_env'"),
        (None, row(), r"no environment chosen: .* set agentic.env=NAME"),
    ):
        with pytest.raises(ConfigError, match=message):
            await stage.loop(servers, env=env).run(dict(SAMPLING), **played)


async def test_options_of_an_agent_loop_file_lie_over_the_configuration(stage: Stage) -> None:
    servers = Servers(stage.tokenizer, [CALL, CALL, "42"])
    loop = stage.loop(servers, named={"limits": {"max_turns": 1}})
    (output,) = await loop.run(dict(SAMPLING), **row())
    assert output.extra_fields["stop_reason"] == "max_turns"


async def test_multimodal_content_is_refused_with_the_way_out(stage: Stage) -> None:
    images = row()
    images["raw_prompt"] = [{"role": "user", "content": [{"type": "image"}]}]
    with pytest.raises(DataError, match="tool_agent"):
        await stage.loop(Servers(stage.tokenizer, [])).run(dict(SAMPLING), **images)


async def test_a_turn_that_ends_exactly_at_its_budget_is_no_cut(stage: Stage) -> None:
    tokens = len(stage.tokenizer.encode("42")) + 1  # and the end of the turn
    whole = await stage.play("42", limits={"max_turn_tokens": tokens})
    cut = await stage.play("42", limits={"max_turn_tokens": tokens - 1})
    reasons = [output.extra_fields["stop_reason"] for output in (whole, cut)]
    assert reasons == [StopReason.ANSWERED.value, StopReason.MAX_TOKENS.value]


async def test_every_episode_is_logged_where_asked_with_what_it_was_paid(stage: Stage, tmp_path: Path) -> None:
    options: dict[str, Any] = {"dir": str(tmp_path / "run")}
    for session, answer in enumerate(("42", "41")):
        loop = stage.loop(Servers(stage.tokenizer, [CALL, answer]), log=options)
        (output,) = await loop.run(dict(SAMPLING), **row(session_id=session, uid="g"))
        output.as_dict()
    void = stage.loop(Servers(stage.tokenizer, [CALL]), log=options)
    (output,) = await void.run(dict(SAMPLING), **row("raise", session_id=2, uid="g"))
    output.as_dict()
    log_writer("trajectories", LogOptions(**options)).close()
    right, wrong = read_samples(tmp_path)
    assert (right.group, right.session, wrong.session, right.step, right.split) == ("g", 0, 1, 7, "train")
    assert right.score == {"acc": 1.0, "score": 0.875, "reward/brevity": -0.125}
    assert wrong.score is not None and wrong.score["acc"] == 0.0
    assert [turn.observations for turn in right.sample.turns] == [("42",), ()]
    assert (right.sample.final_answer, right.sample.ground_truth) == ("42", "42")
    run = RunLog(tmp_path)
    whole, _, failed = (run.record(line) for line in range(3))
    ids = [token for token, mask in zip(whole["response_ids"], whole["response_mask"], strict=True) if mask]
    assert stage.tokenizer.decode(ids).replace("<|im_end|>", "") == CALL + "42"
    assert (whole["reward"], whole["acc"], sum(whole["token_rewards"])) == (0.875, 1.0, 0.875)
    assert (whole["tools"], whole["num_calls"], whole["stop_reason"], whole["breach"]) == (
        ["double"],
        1,
        "answered",
        "",
    )
    assert [span["kind"] for span in whole["spans"]].count("generate") == 2
    assert [s["kind"] for s in whole["segments"]] == ["model", "tool", "model"]
    assert (failed["is_void"], failed["stop_reason"], failed["reward"]) == (True, "infra_error", None)
    assert "sandbox gone" in failed["error"] and not any(failed["response_mask"])


async def test_a_trained_token_that_the_policy_did_not_write_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Trajectory.append_context

    def trained(self: Trajectory, token_ids: list[int], **kwargs: Any) -> None:
        append(self, token_ids, **kwargs)
        self.response_mask[-len(token_ids) :] = [1] * len(token_ids)

    monkeypatch.setattr(Trajectory, "append_context", trained)
    monkeypatch.setattr(Trajectory, "check", lambda self: None)
    output = await stage.play(CALL, "42")
    breach = output.as_dict()["extra_fields"]["breach"]
    assert breach.startswith("text_mismatch: row 0, tokens 0 to ") and "which the policy did not write" in breach
    silent = await stage.play(CALL, "42", audit="off")
    assert silent.as_dict()["extra_fields"]["breach"] == ""


async def test_what_cannot_be_logged_is_trained_on_all_the_same(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options: dict[str, Any] = {"dir": str(tmp_path / "file" / "run")}
    output = await stage.play(CALL, "42", log=options)
    stored = output.as_dict()
    log_writer("trajectories", LogOptions(**options)).close()
    plain = (await stage.play(CALL, "42")).as_dict()
    assert list(stored) == list(plain) and stored["rm_scores"].tolist() == plain["rm_scores"].tolist()
