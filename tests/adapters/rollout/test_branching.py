"""Sessions of one prompt that branch from each other, as verl starts them and stores their rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from stage import CALL, SAMPLING, Chat, Servers, Stage, make_stage, row
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods import branching
from verl_agentic.methods.advantages.arpo import arpo
from verl_agentic.verl.rollout import agent_loop

ROLLOUT = {"n": 4, "calculate_log_probs": True}
ALWAYS = {"initial": 1, "probability": 1.0, "entropy_weight": 0.0}
GREEDY = {**SAMPLING, "temperature": 0}


class Talkers(Servers):
    """Calls the tool until it has been answered, and then says something new."""

    async def generate(self, **request: Any) -> TokenOutput:
        await asyncio.sleep(0)
        self.requests.append(request)
        is_answered = "<tool_response>" in self.tokenizer.decode(request["prompt_ids"])
        text = str(39 + len(self.requests)) if is_answered else CALL
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
        log_probs = [-1.0 - len(self.requests) / 100] * len(ids)
        version = len(self.requests)
        extra = {"min_global_steps": version, "max_global_steps": version}
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason="completed", extra_fields=extra)


@pytest.fixture
def stage(tmp_path: Path, tiny_chat: Chat) -> Stage:
    return make_stage(tmp_path, tiny_chat[0])


async def play(
    stage: Stage, count: int, *, how: str = "", sampling: Any = SAMPLING, rollout: Any = ROLLOUT, **section: Any
) -> list[dict[str, Any]]:
    """Plays the sessions of a prompt side by side, a loop each, as verl does; returns their columns."""
    servers = Talkers(stage.tokenizer, [])
    section = {"branching": ALWAYS, **section}
    loops = [stage.loop(servers, rollout=rollout, **section) for _ in range(count)]
    played = asyncio.gather(*(x.run(dict(sampling), **row(how, session_id=i)) for i, x in enumerate(loops)))
    outputs = await asyncio.wait_for(played, 20)
    assert not branching._groups
    return [output.as_dict() for (output,) in outputs]


async def test_siblings_store_the_prefix_that_they_share_with_its_behaviour_log_probs(stage: Stage) -> None:
    source, branch = await play(stage, 2)
    shared = source["shared_ids"] >= 0
    n = int(shared.sum())
    assert shared[:n].all() and source["shared_ids"].dtype == torch.int64
    text = stage.tokenizer.decode(source["responses"][:n].tolist())
    assert text.startswith(CALL) and text.endswith("</tool_response><|im_end|>\n<|im_start|>assistant\n")
    for name in ("responses", "response_mask", "rollout_log_probs", "turn_ids", "shared_ids"):
        assert torch.equal(source[name][:n], branch[name][:n]), name
    assert source["response_mask"][:n].sum() == len(stage.tokenizer.encode(CALL)) + 1, "what was sampled is trained"
    assert branch["shared_ids"][n:].tolist() == [-1] * (len(branch["responses"]) - n)
    own = slice(n, None)
    assert source["responses"][own].tolist() != branch["responses"][own].tolist()
    assert source["rollout_log_probs"][own].unique() != branch["rollout_log_probs"][own].unique()
    versions = [columns["extra_fields"]["min_global_steps"] for columns in (source, branch)]
    assert versions == [1, 1], "the prefix is as old as its first sampled token"


async def test_hard_attribution_pays_a_shared_token_the_mean_of_its_branches(stage: Stage) -> None:
    # The fourth request of all says 42 and is right; the others are not.
    rows = await play(stage, 4, branching={**ALWAYS, "beam": 4})
    outcomes = [columns["extra_fields"]["reward_extra_info"]["acc"] for columns in rows]
    assert [bool((columns["shared_ids"] >= 0).any()) for columns in rows] == [True] * 4 and sum(outcomes) == 1.0

    def padded(name: str, padding: float) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([c[name] for c in rows], batch_first=True, padding_value=padding)

    batch = CreditBatch.of(
        rewards=padded("rm_scores", 0),
        mask=padded("response_mask", 0),
        groups=["u"] * 4,
        shared_BT=padded("shared_ids", -1),
    )
    hard, soft = arpo(batch, mode="hard").advantages_BT, arpo(batch, mode="soft").advantages_BT
    n = int((rows[0]["shared_ids"] >= 0).sum())
    sampled = batch.mask_BT[0, :n]
    assert soft[:, 0].unique().numel() > 1
    torch.testing.assert_close(hard[:, :n][:, sampled], soft[:, :n][:, sampled].mean(0, keepdim=True).expand(4, -1))
    assert torch.equal(hard[:, n:], soft[:, n:])
    torch.testing.assert_close(hard.sum(0), soft.sum(0))


async def test_every_row_has_the_column_and_verl_can_batch_them(stage: Stage) -> None:
    token = agent_loop._is_validation.set(True)
    try:
        validation = await play(stage, 2)
    finally:
        agent_loop._is_validation.reset(token)
    rows = [*await play(stage, 4), *await play(stage, 3, how="raise"), *await play(stage, 2, sampling=GREEDY)]
    rows += validation
    for columns in rows:
        assert columns["shared_ids"].shape == columns["responses"].shape
    assert [bool((columns["shared_ids"] >= 0).any()) for columns in rows] == [True] * 2 + [False] * 9
    assert set(list_of_dict_to_tensordict(rows).keys()) == set(rows[0])
    assert [list(columns["extra_fields"]["reward_extra_info"]) for columns in rows] == [
        list(rows[0]["extra_fields"]["reward_extra_info"])
    ] * len(rows)


async def test_as_many_samples_come_back_as_were_asked_for(stage: Stage) -> None:
    rows = await play(stage, 16, branching={"initial": 8}, rollout={**ROLLOUT, "n": 16})
    numbers = [columns["extra_fields"]["reward_extra_info"] for columns in rows]
    assert len(rows) == 16 and sum(n["branched"] for n in numbers) >= 1
    assert not any(n["void"] or n["branch_refused"] for n in numbers)
    assert [env.closed for env in stage.envs()] == [1] * 16


async def test_groups_that_are_played_at_once_do_not_mix(stage: Stage) -> None:
    servers = Talkers(stage.tokenizer, [])
    loops = [stage.loop(servers, rollout=ROLLOUT, branching=ALWAYS) for _ in range(4)]
    uids = ["u", "u", "v", "v"]
    outputs = await asyncio.gather(
        *(
            x.run(dict(SAMPLING), **row(session_id=i % 2, uid=uid))
            for i, (x, uid) in enumerate(zip(loops, uids, strict=True))
        )
    )
    log_probs = [output.as_dict()["rollout_log_probs"][0].item() for (output,) in outputs]
    assert log_probs[0] == log_probs[1] != log_probs[2] == log_probs[3]


async def test_without_branching_there_is_no_such_column(stage: Stage) -> None:
    columns = await play(stage, 2, branching=None, rollout={})
    assert all("shared_ids" not in one for one in columns)


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"n": 1, "calculate_log_probs": True}, "1 of 1"),
        ({"n": 4, "calculate_log_probs": False}, r"rollout\.calculate_log_probs"),
    ],
)
async def test_a_rollout_that_cannot_branch_is_refused_when_the_loop_is_made(
    stage: Stage, rollout: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message) as caught:
        stage.loop(Talkers(stage.tokenizer, []), rollout=rollout, branching=ALWAYS)
    assert isinstance(caught.value, ConfigError) or isinstance(caught.value.__cause__, ConfigError)
