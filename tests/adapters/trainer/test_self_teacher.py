"""The teacher of the loss `sdpo`: who is told what, token by token, and what is left behind."""

from __future__ import annotations

import copy
import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from stage import Chat
from stored_rows import StoredRows

from verl_agentic.base.errors import ConfigError, DataError, PluginError
from verl_agentic.verl.extensions.method_features import check_top_tokens
from verl_agentic.verl.extensions.methods.trainer.extra_rows import max_row_tokens
from verl_agentic.verl.extensions.methods.trainer.self_teacher import (
    COLUMN,
    SelfTeacher,
    store_teacher_log_probs,
    teacher_tau,
)


class Workers:
    """Stands in for verl's worker group: a token's log-prob is its own id and that of the one before it."""

    def __init__(self, queue: StoredRows) -> None:
        self.queue = queue
        self.prompts: dict[str, list[int]] = {}
        self.batches: list[Any] = []
        self.error: Exception | None = None
        self.has_plugin = True

    def compute_log_prob(self, batch: Any) -> Any:
        self.batches.append(batch)
        if self.error is not None:
            raise self.error
        for key in batch.keys:
            row = self.queue.rows[key]
            ids = row["input_ids"].float()
            assert torch.equal(row["input_ids"], torch.cat([row["prompts"], row["responses"]]))
            assert row["position_ids"].tolist() == list(range(len(ids)))
            assert batch.tags[batch.keys.index(key)]["seq_len"] == len(ids)
            self.prompts[key.removeprefix("told-")] = row["prompts"].tolist()
            # Position p says something about token p + 1.
            row["log_probs"] = ids + ids.roll(-1) / 1000
            if "teacher_tau" in batch.extra_info and self.has_plugin:
                row["teacher_pass"] = torch.ones_like(ids)
            if batch.extra_info.get("calculate_top_tokens") and self.has_plugin:
                row["top_log_probs"] = -row["top_ids"].float() - len(row["prompts"])
        return batch


@pytest.fixture
def trainer(queue: StoredRows, tiny_chat: Chat) -> Any:
    rollout = {"temperature": 0.7, "log_prob_use_dynamic_bsz": True, "log_prob_max_token_len_per_gpu": 4096}
    actor = {"strategy": "fsdp2", "policy_loss": {"loss_mode": "sdpo"}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "actor": actor}})
    return SimpleNamespace(tokenizer=tiny_chat[0], config=config, actor_rollout_wg=Workers(queue))


def chat(trainer: Any, text: str = "Double 21.") -> list[int]:
    messages = [{"role": "user", "content": text}]
    return trainer.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def put(queue: StoredRows, trainer: Any, key: str, text: str, **row: Any) -> None:
    """Puts a row in that wrote a text and ended its turn."""
    responses = [*trainer.tokenizer.encode(text), trainer.tokenizer.eos_token_id]
    mask = row.pop("mask", [1] * len(responses))
    columns = {"prompts": torch.tensor(chat(trainer)), "responses": torch.tensor(responses)}
    queue.put_row(key, [0.0] * len(responses), mask=mask, **columns, **row)


def teach(queue: StoredRows, trainer: Any, outcomes: list[float]) -> dict[str, list[float]]:
    batch = store_teacher_log_probs(trainer, queue.meta(temperature=1.0, lr_scale=0.5), outcome_B=outcomes)
    assert COLUMN in batch.fields and not [key for key in queue.rows if key.startswith("told-")]
    assert not [key for key in queue.tags["train"] if key.startswith("told-")]
    return {key: queue.rows[key][COLUMN].tolist() for key in batch.keys}


def test_the_teacher_reads_the_solution_at_the_end_of_the_last_message(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "It is 42.")
    got = teach(queue, trainer, [0.0, 1.0])
    told = chat(trainer, "Double 21.\n\nA correct solution:\nIt is 42.\n\nNow solve it yourself.")
    assert trainer.tokenizer.decode(trainer.actor_rollout_wg.prompts["u_0_0"]) == trainer.tokenizer.decode(told)
    assert trainer.actor_rollout_wg.prompts["u_1_0"] == chat(trainer), "its only sibling did not do it"
    ids = [chat(trainer)[-1], *queue.rows["u_0_0"]["responses"].tolist()]
    wanted = [before + token / 1000 for before, token in itertools.pairwise(ids)]
    assert got["u_0_0"] == pytest.approx(wanted), "of the tokens that the row wrote, in their places"
    assert len(got["u_1_0"]) == len(queue.rows["u_1_0"]["responses"]) and all(math.isnan(x) for x in got["u_1_0"])


def test_without_a_solution_a_failed_row_reads_what_the_environment_answered(queue: StoredRows, trainer: Any) -> None:
    said, seen = trainer.tokenizer.encode("I try."), trainer.tokenizer.encode("\nValueError: no such key\n")
    responses = torch.tensor([*said, *seen, *said])
    mask = [1] * len(said) + [0] * len(seen) + [1] * len(said)
    for key in ("u_0_0", "u_1_0", "v_0_0"):
        put(queue, trainer, key, "")
        queue.rows[key] |= {"responses": responses, "response_mask": torch.tensor(mask)}
    queue.rows["u_1_0"]["response_mask"] = torch.zeros(len(responses), dtype=torch.int64)
    got = teach(queue, trainer, [0.0, 0.0, 1.0])
    told = trainer.tokenizer.decode(trainer.actor_rollout_wg.prompts["u_0_0"])
    assert "earlier attempt that failed:\n\nValueError: no such key\n\n\nNow solve" in told and "I try." not in told
    assert not any(math.isnan(x) for x in got["u_0_0"])
    for key in ("u_1_0", "v_0_0"):  # void, and a success alone in its group
        assert trainer.actor_rollout_wg.prompts[key] == chat(trainer) and all(math.isnan(x) for x in got[key])


def test_the_prompt_is_kept_token_by_token(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "It is 42.")
    teach(queue, trainer, [0.0, 1.0])
    told, plain = trainer.actor_rollout_wg.prompts["u_0_0"], chat(trainer)
    place = len(plain) - 1 - plain[::-1].index(trainer.tokenizer.eos_token_id)
    assert told[:place] == plain[:place] and told[place - len(plain) :] == plain[place:]


@pytest.mark.parametrize("header", ["", "<think>\n"])
def test_the_solution_is_in_the_message_when_its_end_is_not_the_end_of_texts(
    queue: StoredRows, trainer: Any, header: str
) -> None:
    tokenizer = copy.deepcopy(trainer.tokenizer)
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "It is 42.")
    for key in ("u_0_0", "u_1_0"):  # a header that only this prompt has
        opened = torch.tensor(tokenizer.encode(header, add_special_tokens=False), dtype=torch.int64)
        queue.rows[key]["prompts"] = torch.cat([queue.rows[key]["prompts"], opened])
    tokenizer.add_special_tokens({"eos_token": "<|end of text|>"})
    assert tokenizer.eos_token_id not in chat(trainer)
    trainer.tokenizer = tokenizer
    teach(queue, trainer, [0.0, 1.0])
    told = chat(trainer, "Double 21.\n\nA correct solution:\nIt is 42.\n\nNow solve it yourself.")
    got = tokenizer.decode(trainer.actor_rollout_wg.prompts["u_0_0"])
    assert got.replace("<|end of text|>", "") == tokenizer.decode(told) + header


def test_only_what_a_sibling_sampled_is_told(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    seen, said = trainer.tokenizer.encode("Tool says 6. "), trainer.tokenizer.encode("It is 42.")
    responses = torch.tensor([*seen, *said])
    queue.put_row(
        "u_1_0",
        [0.0] * len(responses),
        mask=[0] * len(seen) + [1] * len(said),
        prompts=torch.tensor(chat(trainer)),
        responses=responses,
    )
    teach(queue, trainer, [0.0, 1.0])
    text = trainer.tokenizer.decode(trainer.actor_rollout_wg.prompts["u_0_0"])
    assert "It is 42." in text and "Tool says" not in text


@pytest.mark.parametrize("are_special", [False, True])
def test_the_teacher_reads_a_solution_without_its_reasoning(queue: StoredRows, trainer: Any, are_special: bool) -> None:
    trainer.tokenizer = copy.deepcopy(trainer.tokenizer)
    trainer.tokenizer.add_tokens(["<think>", "</think>"], special_tokens=are_special)
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "<think>\nTwice 20, and 2.</think>\nIt is 42.")
    teach(queue, trainer, [0.0, 1.0])
    told = chat(trainer, "Double 21.\n\nA correct solution:\nIt is 42.\n\nNow solve it yourself.")
    assert trainer.tokenizer.decode(trainer.actor_rollout_wg.prompts["u_0_0"]) == trainer.tokenizer.decode(told)


def test_kernels_that_hold_all_logits_on_demand_go_with_top_tokens(trainer: Any) -> None:
    model = {"use_fused_kernels": True, "fused_kernel_options": {"impl_backend": "sampled"}}
    OmegaConf.update(trainer.config, "actor_rollout_ref.model", model, force_add=True)
    trainer.config.actor_rollout_ref.actor.policy_loss.options = {"top_tokens": 5}
    check_top_tokens(trainer.config)


def test_a_solution_that_spells_special_tokens_does_not_write_them(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    spelt = [token for char in "42<|im_end|>\n<|im_start|>" for token in trainer.tokenizer.encode(char)]
    columns: dict[str, Any] = {"prompts": torch.tensor(chat(trainer)), "responses": torch.tensor(spelt)}
    queue.put_row("u_1_0", [0.0] * len(spelt), mask=[1] * len(spelt), **columns)
    teach(queue, trainer, [0.0, 1.0])
    special = {*trainer.tokenizer.all_special_ids}
    told = [token for token in trainer.actor_rollout_wg.prompts["u_0_0"] if token in special]
    assert told == [token for token in chat(trainer) if token in special]


def test_another_session_of_the_group_teaches_with_its_last_row(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_2_0", "void", mask=[0] * (1 + len(trainer.tokenizer.encode("void"))))
    put(queue, trainer, "u_0_1", "last of 0")
    put(queue, trainer, "u_0_0", "first of 0")
    put(queue, trainer, "u_1_0", "first of 1")
    put(queue, trainer, "u_1_1", "last of 1")
    put(queue, trainer, "u_3_0", "failed")
    put(queue, trainer, "v_0_0", "elsewhere")
    teach(queue, trainer, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    prompts = trainer.actor_rollout_wg.prompts
    texts = {key: trainer.tokenizer.decode(ids) for key, ids in prompts.items()}
    for key in ("u_0_0", "u_0_1"):
        assert "last of 1" in texts[key], key
    for key in ("u_1_0", "u_1_1", "u_2_0", "u_3_0"):
        assert "last of 0" in texts[key], key
    assert prompts["v_0_0"] == chat(trainer), "other groups' solutions solve other tasks"


@pytest.mark.parametrize("outcomes", [[0.0, 0.0], [1.0, math.nan], [0.99, 1.0]])
def test_without_a_sibling_that_did_the_task_there_is_no_teacher(
    queue: StoredRows, trainer: Any, outcomes: list[float]
) -> None:
    put(queue, trainer, "u_0_0", "one")
    put(queue, trainer, "u_1_0", "other")
    got = teach(queue, trainer, outcomes)
    is_taught = [not any(math.isnan(x) for x in column) for column in got.values()]
    assert is_taught == [outcomes[1] >= 1, outcomes[0] >= 1]


def test_rows_that_the_engine_could_not_take_with_a_solution_are_not_taught(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "It is 42.")
    teach(queue, trainer, [0.0, 1.0])
    length = len(trainer.actor_rollout_wg.prompts["u_0_0"]) + len(queue.rows["u_0_0"]["responses"])
    rollout = trainer.config.actor_rollout_ref.rollout
    rollout.log_prob_max_token_len_per_gpu = length
    assert not math.isnan(teach(queue, trainer, [0.0, 1.0])["u_0_0"][0])
    rollout.log_prob_max_token_len_per_gpu = length - 1
    assert math.isnan(teach(queue, trainer, [0.0, 1.0])["u_0_0"][0])
    assert trainer.actor_rollout_wg.prompts["u_0_0"] == chat(trainer)
    rollout.log_prob_use_dynamic_bsz = False
    assert not math.isnan(teach(queue, trainer, [0.0, 1.0])["u_0_0"][0]), "micro-batches count rows, not tokens"


def test_the_model_computes_log_probs_as_it_does_for_the_rows_themselves(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "one")
    teach(queue, trainer, [0.0])
    (batch,) = trainer.actor_rollout_wg.batches
    assert batch.extra_info == {"calculate_entropy": False, "compute_loss": False, "temperature": 0.7}


def test_a_teacher_that_follows_slowly_is_asked_for_by_its_tau(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "one")
    OmegaConf.update(trainer.config, "algorithm.self_teacher", {"tau": 0.05}, force_add=True)
    teach(queue, trainer, [0.0])
    (batch,) = trainer.actor_rollout_wg.batches
    assert batch.extra_info["teacher_tau"] == 0.05 and batch.extra_info["temperature"] == 0.7
    trainer.actor_rollout_wg.has_plugin = False
    with pytest.raises(PluginError, match="teacher_pass"):
        teach(queue, trainer, [0.0])
    assert list(queue.rows) == ["u_0_0"]


def test_the_teacher_is_asked_for_the_most_likely_tokens_of_the_policy(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "I give up.")
    put(queue, trainer, "u_1_0", "It is 42.")
    for row in queue.rows.values():
        row["top_ids"] = torch.arange(2 * len(row["responses"]), dtype=torch.int32).view(-1, 2)
    trainer.config.actor_rollout_ref.actor.policy_loss.options = {"alpha": 0.5, "top_tokens": 2}
    teach(queue, trainer, [0.0, 1.0])
    (batch,) = trainer.actor_rollout_wg.batches
    assert batch.extra_info["calculate_top_tokens"] == 2
    prompts = trainer.actor_rollout_wg.prompts
    for key, row in queue.rows.items():
        expected = -row["top_ids"].float() - len(prompts[key])
        assert torch.equal(row["teacher_top_log_probs"], expected), "of the same tokens, behind its own prompt"
    trainer.actor_rollout_wg.has_plugin = False
    with pytest.raises(PluginError, match="top_log_probs"):
        teach(queue, trainer, [0.0, 1.0])


def test_the_engine_is_asked_for_top_tokens_of_the_policy_alone(queue: StoredRows, trainer: Any) -> None:
    put(queue, trainer, "u_0_0", "one")
    part = SelfTeacher(trainer.config)
    batch = queue.meta()
    part.before_log_probs(batch)
    assert batch.extra_info == {}, "the loss learns from sampled tokens"
    trainer.config.actor_rollout_ref.actor.policy_loss.options = {"top_tokens": 5}
    part.before_log_probs(batch)
    assert batch.extra_info == {"calculate_top_tokens": 5}
    assert part.after_log_probs(batch).extra_info == {}, "not of a reference"
    part.before_update(batch)
    assert batch.extra_info == {"calculate_top_tokens": 5}
    trainer.config.actor_rollout_ref.actor.policy_loss.loss_mode = "vapo"
    part.before_log_probs(other := queue.meta())
    assert other.extra_info == {}, "another loss has other options"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm.rollout_correction": {"bypass_mode": True}}, "bypass_mode"),
        ({"actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2}, "ulysses_sequence_parallel_size': 2"),
        ({"actor_rollout_ref.actor.fsdp_config": {"ulysses_sequence_parallel_size": 2}}, "fsdp_config"),
        ({"actor_rollout_ref.actor.strategy": "megatron"}, "'megatron'"),
        ({"actor_rollout_ref.model.use_fused_kernels": True}, "use_fused_kernels"),
    ],
)
def test_top_tokens_that_nothing_computes_are_refused(trainer: Any, changes: dict[str, Any], message: str) -> None:
    for key, value in changes.items():
        OmegaConf.update(trainer.config, key, value, force_add=True)
    check_top_tokens(trainer.config)
    trainer.config.actor_rollout_ref.actor.policy_loss.options = {"top_tokens": 5}
    with pytest.raises(ConfigError, match=message):
        check_top_tokens(trainer.config)


@pytest.mark.parametrize(
    "columns",
    [{"position_ids": torch.zeros(4, 3, dtype=torch.int64)}, {"multi_modal_inputs": {"pixel_values": torch.zeros(1)}}],
)
def test_prompts_that_are_more_than_text_are_refused(queue: StoredRows, trainer: Any, columns: dict[str, Any]) -> None:
    put(queue, trainer, "u_0_0", "one", **columns)
    with pytest.raises(DataError, match="images"):
        teach(queue, trainer, [0.0])


def test_engines_that_share_a_sequence_take_longer_rows(trainer: Any) -> None:
    assert max_row_tokens(trainer.config) == 4096
    OmegaConf.update(trainer.config, "actor_rollout_ref.actor.ulysses_sequence_parallel_size", 4, force_add=True)
    assert max_row_tokens(trainer.config) == 4 * 4096


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm.self_teacher": {"tau": 0}}, "self_teacher.tau"),
        ({"algorithm.self_teacher": {"rate": 0.05}}, "'rate'"),
        ({"actor_rollout_ref.actor.policy_loss.loss_mode": "vapo"}, "loss_mode"),
        ({"actor_rollout_ref.actor.strategy": "fsdp"}, "'fsdp'"),
    ],
)
def test_a_teacher_that_cannot_work_is_refused(trainer: Any, changes: dict[str, Any], message: str) -> None:
    assert teacher_tau(trainer.config) is None
    for key, value in {"algorithm.self_teacher": {"tau": 0.05}, **changes}.items():
        OmegaConf.update(trainer.config, key, value, force_add=True, merge=False)
    with pytest.raises(ConfigError, match=message):
        teacher_tau(trainer.config)


@pytest.mark.parametrize("where", ["model", "put"])
def test_nothing_is_left_behind_when_it_fails(
    queue: StoredRows, trainer: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queue, trainer, "u_0_0", "one")
    error = RuntimeError("out of memory")
    trainer.actor_rollout_wg.error = error
    if where == "put":
        stored = queue.kv_batch_put

        def fail(**given: Any) -> None:
            stored(**given)
            raise error

        monkeypatch.setattr("transfer_queue.kv_batch_put", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        store_teacher_log_probs(trainer, queue.meta(), outcome_B=[0.0])
    assert set(queue.rows) == set(queue.tags["train"]) == {"u_0_0"}
