"""`data.curriculum` under verl's own data loader, replay buffer and checkpoints; only what plays episodes is a fake."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from torchdata.stateful_dataloader.sampler import RandomSampler
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

import verl_agentic.verl.trainer.prompt_order  # noqa: F401
from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message
from verl_agentic.episode.loop_settings import GREEDY_SESSION, INSTRUCTION
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import Reply
from verl_agentic.log.files.rows import row_of_columns, write_rows
from verl_agentic.sampling.prompt_sampler import PromptSampler
from verl_agentic.verl.object_state import state_of

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's data loader
Outcome = Callable[[str, int], float]
"""Prompt's text and session -> outcome."""


class Queue:
    """TransferQueue in the process."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {}
        self.extra: dict[str, Any] = {}
        self.greedy_session: int | None = None

    def kv_batch_put(self, *, keys: list[str], partition_id: str, tags: Any, fields: Any = None) -> None:
        for key, tag in zip(keys, tags, strict=True):
            self.tags.setdefault(partition_id, {})[key] = dict(tag)

    def kv_list(self, partition_id: str | None = None) -> Any:
        return self.tags

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        assert set(select_fields) <= {"extra_fields", GREEDY_SESSION}
        columns: dict[str, Any] = {"extra_fields": NonTensorStack(*(self.extra[key] for key in keys))}
        if self.greedy_session is not None:
            columns[GREEDY_SESSION] = torch.full((len(keys),), self.greedy_session)
        return TensorDict(columns, batch_size=[len(keys)])

    def kv_clear(self, *, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...


class Players:
    """Plays every prompt at once; stands in for verl's agent loop manager."""

    def __init__(self, queue: Queue, outcome: Outcome, group_size: int) -> None:
        self.queue, self.outcome, self.group_size = queue, outcome, group_size
        self.played: list[tuple[str, int]] = []

    def generate_sequences(self, batch: TensorDict) -> None:
        texts = [messages[0]["content"] for messages in (_plain(prompt) for prompt in batch["raw_prompt"])]
        sizes = batch["__rollout_n__"].tolist() if "__rollout_n__" in batch else [self.group_size] * len(texts)
        for uid, text, size in zip(batch["uid"], texts, sizes, strict=True):
            self.played.append((text, size))
            keys = [f"{_plain(uid)}_{session}_0" for session in range(size)]
            tags = [{"status": "success"}] * size
            self.queue.kv_batch_put(keys=keys, partition_id="train", tags=tags)
            for session, key in enumerate(keys):
                self.queue.extra[key] = {"reward_extra_info": {"acc": self.outcome(text, session), "void": 0.0}}
            self.queue.tags["train"][_plain(uid)]["status"] = "finished"

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.played]


def _plain(value: Any) -> Any:
    return getattr(value, "data", value)


class Workers:
    """Actor workers that save and load nothing."""

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...

    def load_checkpoint(self, **kwargs: Any) -> None: ...


class Callback:
    def on_save(self, **kwargs: Any) -> None: ...


class Trainer(PPOTrainer):
    """verl's trainer as far as its data, its replay buffer and its checkpoints go."""

    def __init__(self, config: DictConfig, queue: Queue, outcome: Outcome, buffer: type[ReplayBuffer]) -> None:
        self.config, self.trainer_mode, self.parameter_sync_step = config, config.trainer.v1.trainer_mode, 1
        self.tokenizer = self.processor = None
        self.use_critic, self.global_steps = False, 1
        self.actor_rollout_wg, self.checkpoint_callback = Workers(), Callback()
        self.agent_loop_manager = Players(queue, outcome, config.actor_rollout_ref.rollout.n)
        self.replay_buffer = buffer(
            trainer_mode=self.trainer_mode,
            trainer_config=OmegaConf.create({}),
            max_off_policy_threshold=8,
            max_off_policy_strategy="drop",
            sampler_kwargs=OmegaConf.create({}),
            poll_interval=0.01,
            refill_fn=self._add_prompts_to_generate,
            filter_groups_metric="acc" if config.algorithm.filter_groups.enable else None,
            train_batch_size=config.data.train_batch_size,
            gen_batch_size=1,
        )
        self._init_dataloader()

    def on_step_end(self) -> None: ...

    def on_sample_end(self) -> None: ...

    def one_step(self) -> dict[str, Any]:
        self._add_batch_to_generate()
        batch, metrics = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id="train", batch_size=self.config.data.train_batch_size
        )
        tq.kv_clear(keys=batch.keys, partition_id="train")
        self.global_steps += 1
        return metrics

    @property
    def players(self) -> Players:
        return self.agent_loop_manager


class Lab:
    """Makes trainers over one file of rows q0, q1, ..., of rising difficulty, alternately of the sources m and c."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        self.folder, self.queue = folder, queue
        self.file = folder / "train.jsonl"
        write_rows([row(f"q{i}", difficulty=float(i), source="mc"[i % 2]) for i in range(12)], self.file)

    def trainer(
        self,
        curriculum: dict[str, Any] | None,
        *,
        outcome: Outcome = lambda text, session: float(session % 2),
        workers: int = 0,
        filters: bool = False,
        n: int = 4,
        resume: Path | None = None,
        mode: str = "sync",
        data: dict[str, Any] | None = None,
    ) -> Trainer:
        data = {
            "train_files": str(self.file),
            "val_files": str(self.file),
            "cache_dir": str(self.folder),
            "train_batch_size": 4,
            "val_batch_size": None,
            "dataloader_num_workers": workers,
            "filter_overlong_prompts": False,
            "shuffle": True,
            "seed": 1,
            **(data or {}),
        }
        saving = {
            "default_local_dir": str(self.folder / "checkpoints"),
            "default_hdfs_dir": None,
            "del_local_ckpt_after_load": False,
            "resume_mode": "resume_path" if resume else "disable",
            "resume_from_path": str(resume),
        }
        config = OmegaConf.create(
            {
                "data": data if curriculum is None else {**data, "curriculum": curriculum},
                "algorithm": {"filter_groups": {"enable": filters}},
                "trainer": {
                    **saving,
                    "total_epochs": 1,
                    "total_training_steps": None,
                    "v1": {"trainer_mode": mode, "sampler": {}},
                },
                "actor_rollout_ref": {"rollout": {"n": n}, "actor": {}},
            }
        )
        trainer = Trainer(config, self.queue, outcome, ReplayBuffer if mode == "sync" else ReplayBufferAsync)
        if resume:
            trainer._load_checkpoint()
            trainer.global_steps += 1
        return trainer


def row(text: str, *, difficulty: float, source: str) -> EnvRow:
    return EnvRow(
        prompt=(Message(role="user", content=text),),
        ground_truth="1",
        data_source=source,
        extra={"difficulty": difficulty},
    )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    queue = Queue()
    for name in ("kv_batch_put", "kv_list", "kv_batch_get", "kv_clear", "save_checkpoint"):
        monkeypatch.setattr(tq, name, getattr(queue, name))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return Lab(tmp_path, queue)


def curriculum_of(trainer: Trainer) -> PromptSampler:
    sampler = trainer.train_dataloader.sampler
    assert isinstance(sampler, PromptSampler)
    return sampler


def test_without_the_section_verls_own_sampler_and_buffer_stay(lab: Lab) -> None:
    trainer = lab.trainer(None)
    assert isinstance(trainer.train_dataloader.sampler, RandomSampler)
    assert "sample" not in vars(trainer.replay_buffer)
    assert not any(key.startswith("curriculum/") for key in trainer.one_step())


def test_prompts_come_in_the_order_of_the_curriculum_over_the_end_of_an_epoch(lab: Lab) -> None:
    trainer = lab.trainer({"name": "hard_to_easy"})
    for _ in range(4):
        trainer.one_step()
    assert trainer.players.texts == [f"q{i}" for i in [*range(11, -1, -1), 11, 10, 9, 8]]


def test_a_step_draws_by_the_sources_of_its_stage(lab: Lab) -> None:
    stages = [{"sources": ["m"], "steps": 2}, {"sources": ["c"]}]
    trainer = lab.trainer({"name": "by_source", "options": {"stages": stages}})
    parities = []
    for _ in range(3):
        trainer.one_step()
        parities.append({int(text[1:]) % 2 for text in trainer.players.texts[-4:]})
    assert parities == [{0}, {0}, {1}]


def test_finished_groups_are_reported_with_the_metrics_of_the_step(lab: Lab) -> None:
    trainer = lab.trainer({"name": "learnability"}, outcome=lambda text, session: float(text in ("q1", "q2")))
    metrics = trainer.one_step()
    sampler = curriculum_of(trainer)
    played = sorted(int(text[1:]) for text in trainer.players.texts)
    assert sampler.rates.is_seen_N.nonzero()[0].tolist() == sorted(set(played))
    assert metrics["curriculum/seen_share"] == len(set(played)) / 12
    for prompt in played:
        assert sampler.rates.streak_N[prompt] == (1 if prompt in (1, 2) else -1)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_groups_that_dynamic_sampling_drops_are_reported_too(lab: Lab, mode: str) -> None:
    def outcome(text: str, session: int) -> float:
        return float(session % 2) if int(text[1:]) % 3 == 0 else 0.0

    trainer = lab.trainer({"name": "easy_to_hard"}, outcome=outcome, filters=True, mode=mode)
    metrics = trainer.one_step()
    sampler = curriculum_of(trainer)
    assert metrics["training/filter_groups/evicted_samples"] > 0
    assert trainer.config.data.gen_batch_size == 1
    for prompt in range(9):  # q0, q3, q6 and q9 are kept; what lies between was dropped
        assert sampler.rates.groups_N[prompt] >= 1, prompt
        assert sampler.rates.streak_N[prompt] == (0 if prompt % 3 == 0 else -sampler.rates.groups_N[prompt])


def test_a_resumed_run_goes_on_with_the_same_prompts_and_rates(lab: Lab) -> None:
    def outcome(text: str, session: int) -> float:
        return float((int(text[1:]) + session) % 3 == 0)

    def texts(trainer: Trainer) -> list[str]:
        trainer.players.played.clear()
        for _ in range(3):
            trainer.one_step()
        return trainer.players.texts

    trainer = lab.trainer({"name": "learnability"}, outcome=outcome)
    for _ in range(4):  # beyond the first epoch, in the middle of the second
        trainer.one_step()
    trainer.global_steps -= 1
    trainer._save_checkpoint()
    trainer.global_steps += 1
    folder = lab.folder / "checkpoints" / "global_step_4"
    assert (folder / "data.pt").is_file()
    resumed = lab.trainer({"name": "learnability"}, outcome=outcome, resume=folder)
    assert curriculum_of(resumed).rates.mean_N.tolist() == curriculum_of(trainer).rates.mean_N.tolist()
    assert texts(resumed) == texts(trainer)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("data", "is_reversed", "truth", "is_refused"),
    [({}, False, "1", False), ({"seed": 2}, False, "1", True), ({}, True, "1", True), ({}, False, "2", True)],
    ids=["same", "another subset", "another order", "another truth"],
)
def test_a_curriculum_refuses_to_resume_with_other_rows(
    lab: Lab, data: dict[str, Any], is_reversed: bool, truth: str, is_refused: bool
) -> None:
    sampled = {"train_max_samples": 8}
    lab.trainer({"name": "learnability"}, data=sampled)._save_checkpoint()
    rows = [dataclasses.replace(row(f"q{i}", difficulty=float(i), source="mc"[i % 2]), ground_truth=truth)
            for i in range(12)]  # fmt: skip
    lab.file = lab.folder / "again.jsonl"
    write_rows(rows[::-1] if is_reversed else rows, lab.file)
    with pytest.raises(DataError, match="other rows") if is_refused else contextlib.nullcontext():
        lab.trainer(
            {"name": "learnability"}, data={**sampled, **data}, resume=lab.folder / "checkpoints" / "global_step_1"
        )


def test_groups_under_way_at_a_checkpoint_still_count_after_it(lab: Lab) -> None:
    trainer = lab.trainer({"name": "easy_to_hard"}, mode="colocate_async")
    trainer._add_batch_to_generate()
    trainer._save_checkpoint()
    resumed = lab.trainer({"name": "easy_to_hard"}, resume=lab.folder / "checkpoints" / "global_step_1")
    resumed.replay_buffer.sample(global_steps=2, partition_id="train", batch_size=4)
    assert curriculum_of(resumed).rates.groups_N.tolist() == [1] * 4 + [0] * 8


def test_group_sizes_differ_and_their_sum_is_that_of_equal_ones(lab: Lab) -> None:
    def outcome(text: str, session: int) -> float:
        return float(session % 2) if text in ("q0", "q1") else 0.0

    trainer = lab.trainer({"name": "easy_to_hard", "group_size": {"least": 2, "most": 12}}, outcome=outcome, n=4)
    for _ in range(4):
        trainer.one_step()
    sizes = [size for _, size in trainer.players.played]
    assert sizes[:12] == [4] * 12  # nothing is known yet
    assert sum(sizes[12:]) == 16
    assert min(sizes[12:14]) > max(sizes[14:]) >= 2  # q0 and q1 differ between attempts, q2 and q3 do not


def test_one_prompt_at_a_time_gets_the_size_of_the_config(lab: Lab) -> None:
    trainer = lab.trainer({"name": "easy_to_hard", "group_size": {"least": 2, "most": 12}}, filters=True)
    trainer._add_prompts_to_generate(1)
    assert trainer.players.played == [("q0", 4)]


def test_a_proposed_task_that_passes_its_check_is_in_the_next_batch(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = lab.folder / "proposals.jsonl"
    (lab.folder / "curriculum_checks.py").write_text(
        'def is_fine(row):\n    return row["prompt"][0]["content"].startswith("good")\n', encoding="utf-8"
    )
    monkeypatch.syspath_prepend(lab.folder)
    task_set = {"proposals": str(proposals), "check": "curriculum_checks:is_fine"}
    trainer = lab.trainer({"name": "easy_to_hard", "task_set": task_set})
    trainer.one_step()
    rows = lab.file.with_name("new.jsonl")
    write_rows([row(text, difficulty=-1.0, source="m") for text in ("good", "bad", "good too")], rows)
    *whole, half_written = rows.read_text().splitlines(keepends=True)
    proposals.write_text("".join(whole) + '{"prompt": []}\n' + half_written[:40])
    trainer.one_step()
    assert trainer.players.texts[4:] == ["good", "q4", "q5", "q6"]
    assert "columns" in caplog.text
    with proposals.open("a") as file:
        file.write(half_written[40:])
    trainer.one_step()
    assert trainer.players.texts[8:] == ["good too", "q7", "q8", "q9"]
    for _ in range(2):
        trainer.one_step()
    assert trainer.players.texts[12:16] == ["q10", "q11", "good", "good too"]  # their place in the next epoch
    assert "bad" not in trainer.players.texts
    tasks = curriculum_of(trainer).tasks
    assert tasks is not None and json.dumps(tasks.rows[0]) + "\n" == whole[0]  # playing a row has not changed it


def test_each_group_gets_an_instruction_and_its_outcome_is_attributed(lab: Lab) -> None:
    seen: list[list[str]] = []
    trainer = lab.trainer({"name": "learnability", "instructions": {"initial": ["plain", "think twice"]}})
    play = trainer.players.generate_sequences

    def record(batch: TensorDict) -> None:
        seen.append([_plain(one) for one in batch[INSTRUCTION]])
        play(batch)

    trainer.players.generate_sequences = record  # type: ignore[method-assign]
    metrics = [trainer.one_step() for _ in range(3)][-1]
    assert seen[0][:2] == ["plain", "think twice"] and all(len(step) == 4 for step in seen)
    population = curriculum_of(trainer).instructions
    assert population is not None and [one.weight for one in population.living] == [0.5, 0.5]
    assert metrics["curriculum/instructions"] == 2.0


def test_a_model_proposes_an_instruction_that_is_tried_in_later_steps(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(self: ChatModel, messages: list[Message]) -> Reply:
        asked.append(messages[0].content)
        return Reply(text="I see. <instruction> check the result </instruction>")

    monkeypatch.setattr(ChatModel, "ask", ask)
    reflector = {"url": "http://127.0.0.1:9/v1", "model": "m"}
    options = {"initial": ["plain"], "every": 2, "trial_groups": 2, "reflector": reflector}
    trainer = lab.trainer({"name": "learnability", "instructions": options})
    population = curriculum_of(trainer).instructions
    assert population is not None
    for _ in range(3):
        trainer.one_step()
        state_of(trainer).curriculum_parts[0].asker._threads.submit(int).result()  # the answer has come
    trainer.one_step()
    trainer.one_step()
    assert len(asked) >= 1 and "'plain'" in asked[0] and "q" in asked[0]
    assert [one.text for one in population.living] == ["plain", "check the result"]
    with pytest.raises(ConfigError, match=r"instructions.reflector must have \['model', 'url'\]|must have"):
        lab.trainer({"name": "learnability", "instructions": {"initial": ["a"], "reflector": {}}})


def test_a_base_that_solves_nothing_is_told_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    trainer = lab.trainer({"name": "easy_to_hard"}, outcome=lambda text, session: 0.0)
    for _ in range(5):
        trainer.one_step()
    assert sum("base too weak" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("section", "more", "message"),
    [
        ({"name": "value"}, {"workers": 2}, r"data\.curriculum"),
        ({"name": "value", "group_size": {"least": 6, "most": 8}}, {}, "rollout.n"),
        ({"name": "curious"}, {}, "'curious'"),
        ({"name": "value", "task_set": {"proposals": "p", "check": "json:nothing"}}, {}, r"task_set\.check"),
    ],
)
def test_what_cannot_work_stops_before_the_first_step(
    lab: Lab, section: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lab.trainer(section, **more)


@pytest.mark.parametrize(
    ("key", "message"), [("level", "'level'"), ("extra_info.level", "extra_info.level"), ("data_source", "data_source")]
)
def test_a_difficulty_that_is_not_there_is_told(lab: Lab, key: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        lab.trainer({"name": "easy_to_hard", "difficulty_key": key})


def test_the_measured_rates_of_a_column_are_a_start(lab: Lab) -> None:
    rows = [json.loads(line) for line in lab.file.read_text().splitlines()]
    for place, record in enumerate(rows):
        record["solved"] = None if place % 2 else place / 20
    lab.file.write_text("".join(json.dumps(record) + "\n" for record in rows))
    rates = curriculum_of(lab.trainer({"name": "learnability", "pass_rate_key": "solved"})).rates
    assert rates.is_seen_N.tolist() == [place % 2 == 0 for place in range(12)]
    assert rates.mean_N[10] == pytest.approx((0.5 + 0.5) / 2)
    assert rates.mean_N[0] == pytest.approx(0.25)


def test_outcomes_are_those_of_last_rows_without_the_void_ones(lab: Lab) -> None:
    from verl_agentic.verl.trainer.prompt_order import outcomes_of

    def extra(acc: float | None, void: float = 0.0) -> dict[str, Any]:
        return {"reward_extra_info": {"void": void} if acc is None else {"acc": acc, "void": void}}

    lab.queue.extra = {
        **{f"u_1_0_{i}": extra(9.0) for i in range(10)},
        "u_1_0_10": extra(1.0),
        "u_1_1_0": extra(0.0, void=1.0),
        "u_1_2_0": extra(0.25),
        "v_0_0": extra(None, void=1.0),
    }
    assert outcomes_of(list(lab.queue.extra), "train", name="acc") == {"u_1": [1.0, 0.25], "v": []}
    assert outcomes_of([], "train", name="acc") == {}
    with pytest.raises(ConfigError, match="reward_extra_info"):
        outcomes_of(list(lab.queue.extra), "train", name="score")


def test_pass_rates_are_of_what_the_policy_sampled(lab: Lab) -> None:
    from verl_agentic.verl.trainer.prompt_order import outcomes_of

    lab.queue.extra = {
        "u_0_0": {"reward_extra_info": {"acc": 1.0, "external": 1.0}},
        "u_1_0": {"reward_extra_info": {"acc": 0.0, "external": 0.0}},
        "u_2_0": {"reward_extra_info": {"acc": 1.0}},
    }
    assert outcomes_of(list(lab.queue.extra), "train", name="acc") == {"u": [0.0, 1.0]}
    lab.queue.greedy_session = 2
    assert outcomes_of(list(lab.queue.extra), "train", name="acc") == {"u": [0.0]}


def test_a_model_writes_new_tasks_from_failed_ones_until_the_value_filter_removes_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(self: ChatModel, messages: list[Message]) -> Reply:
        asked.append(messages[0].content)
        return Reply(text="<task>easier</task> and <task>new</task>, <task>one too many</task>")

    def outcome(text: str, session: int) -> float:
        return {"new": float(session % 2), "easier": 1.0, "q1": 0.0}.get(text, 1.0)

    monkeypatch.setattr(ChatModel, "ask", ask)
    task_set = {
        "proposals": str(lab.folder / "proposals.jsonl"),
        "check": "verl_agentic.data.mutated_rows:is_row",
        "value_bounds": [0.05, 0.75],
        "mutator": {"url": "http://127.0.0.1:9/v1", "model": "m"},
        "every": 2,
        "mutations": 2,
    }
    trainer = lab.trainer({"name": "failed_tasks", "task_set": task_set}, outcome=outcome, n=4)
    for _ in range(8):
        trainer.one_step()
        state_of(trainer).curriculum_parts[0].asker._threads.submit(int).result()  # the answer has come
    tasks = curriculum_of(trainer).tasks
    assert tasks is not None and all("q1" in request for request in asked)
    assert [one["prompt"][-1]["content"] for one in tasks.rows] == ["easier", "new"]
    read = [row_of_columns(one, "a task") for one in tasks.rows]
    assert [(one.ground_truth, one.extra["mutated_from"]) for one in read] == [(None, "")] * 2
    assert {"easier", "new"} <= set(trainer.players.texts)
    assert tasks.is_alive_N.tolist() == [False, True]  # its success rate of 1 is above 0.75
    with pytest.raises(ConfigError, match=r"task_set\.mutator"):
        lab.trainer({"name": "failed_tasks", "task_set": {**task_set, "mutator": {}}})
