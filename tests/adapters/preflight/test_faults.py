"""Faults that preflight finds, each shown to end or spoil a start, and sound configurations, which pass.

A start is the code of `main_ppo` up to Ray, then that of its task runner and workers, in this process: guard,
validation, trainer, sections of the workers, data loader, estimator and loss by name.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("verl")

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls, trainer_base
from verl.utils import device
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.torch_functional import masked_whiten
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl_versions import AFTER_MAIN, needs_verl

from verl_agentic.base.errors import AgenticError
from verl_agentic.checks.preflight.result import judge
from verl_agentic.data.prepare import make_rows, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.verl.config_root import place_of, prepare
from verl_agentic.verl.extensions.preflight import compose as preflight_compose
from verl_agentic.verl.extensions.preflight import plan_run
from verl_agentic.verl.extensions.preflight.compose import Composed, compose

BROKEN = Path(__file__).parents[2] / "fixtures" / "broken_configs"
SEARCH = "hydra.searchpath=[pkg://verl_agentic.config]"
AG, LOSS = "++agentic", "actor_rollout_ref.actor.policy_loss"
SAMPLER, CURRICULUM = "trainer.v1.sampler", "++agentic.curriculum"
KWARGS, CREDIT = "++agentic.sampling", "++agentic.credit"
OURS = "trainer.v1.trainer_mode=agentic_sync"
GATED = (
    f"{SAMPLER}.custom_sampler.path=pkg://verl_agentic.verl.replay_buffer.gated_buffer",
    f"{SAMPLER}.custom_sampler.name=GatedReplayBuffer",
)
RUBRIC = "reward.reward_manager.name=rubric"
SELF = "++algorithm.self_teacher={tau: 0.05}"
KL = "actor_rollout_ref.actor.use_kl_loss=true"
DISTILLED = ("distillation.enabled=true", "distillation.teacher_models.teacher_model.model_path=some/teacher")
DYNAMIC = "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz"
SDPO = f"{LOSS}.loss_mode=sdpo"

ENDS: list[tuple[str, tuple[str, ...]]] = [
    ("sections", (f"{AG}.health.actions.gradiant=stop",)),
    ("sections", (f"{AG}.health.actions.gradient=rollback", "trainer.save_freq=-1")),
    ("sections", (f"{AG}.health.thresholds.gradientt={{patience: 3}}",)),
    ("sections", (f"{AG}.waiting.stuck_afer_s=60",)),
    ("sections", (f"{AG}.log.dri=x",)),
    ("sections", (f"{AG}.audit=halt",)),
    ("sections", (f"{AG}.limits.max_turns=zero",)),
    ("sections", (f"{AG}.compaction={{strategy: sumary}}",)),
    ("sections", (f"{AG}.exploration.epsilon=0.1",)),
    ("sections", (f"{AG}.temperature_schedule={{start: 1.0, end: 0.0, steps: 5}}",)),
    ("sections", (f"{AG}.max_turns_schedule={{stages: [2, 4], evry: 5}}",)),
    ("sections", (f"{AG}.max_void_share=2",)),
    ("sections", (f"{AG}.external_sessions=99",)),
    ("sections", (f"{AG}.branching={{initial: 99}}",)),
    ("sections", (f"{AG}.protocol_options.repair=maybe",)),
    ("sections", (f"{AG}.guidance=perhaps",)),
    ("sections", (f"{CURRICULUM}={{name: learnabilty}}", "data.dataloader_num_workers=0")),
    ("sections", (f"{CURRICULUM}={{name: learnability}}", "data.dataloader_num_workers=4")),
    ("sections", (f"{CURRICULUM}={{name: learnability, group_size: {{least: 1, most: 4}}}}",)),
    ("sections", (*GATED, f"{KWARGS}={{gates: [zero_varience]}}")),
    ("sections", (*GATED, f"{KWARGS}={{replay: {{capcity: 4}}}}")),
    ("sections", (f"{KWARGS}={{poll_interval: 0.1}}",)),
    ("sections", (f"{CREDIT}={{clip: -1}}",)),
    ("sections", (f"{CREDIT}={{options: {{gama: 0.9}}}}", "algorithm.adv_estimator=turn_group", OURS)),
    ("sections", (f"{CREDIT}={{options: {{gamma: 0.9}}}}",)),
    ("sections", ("++algorithm.length_lr={reference_token: 64}", OURS)),
    ("sections", ("++algorithm.prompt_information={evry: 5}", OURS)),
    ("sections", ("++algorithm.self_teacher={tau: 2}", SDPO, OURS)),
    ("sections", (SELF, OURS)),
    ("sections", ("++algorithm.implicit_reward={model_path: phi, beta: -1}", OURS)),
    ("sections", (f"++{LOSS}.options={{kl_coeff: 0.1}}", f"{LOSS}.loss_mode=masked_ppo")),
    ("sections", (f"++{LOSS}.options={{low: 0.1}}",)),
    ("sections", ("++critic.categorical={low: 1, high: 0, bins: 4}",)),
    ("sections", ("++critic.target={tau: 0.1}", OURS)),
    ("sections", (RUBRIC, "++reward.rubric={components: [{use: math, wieght: 1}]}")),
    ("sections", (RUBRIC, "++reward.rubric={components: [{use: maths}]}")),
    ("sections", ("++actor_rollout_ref.rollout.engine_kwargs.agentic={prefil_tokens: 64}",)),
    ("plugin", ("algorithm.adv_estimator=turn_gae", OURS)),
    ("estimator", ("algorithm.adv_estimator=grop",)),
    ("policy_loss", (f"{LOSS}.loss_mode=vanila",)),
    ("verl_validation", ("trainer.v1.trainer_mode=synk",)),
    ("verl_validation", ("trainer.v1.trainer_mode=separate_async",)),
    ("verl_validation", (f"{SAMPLER}.max_off_policy_threshold=0",)),
    ("verl_validation", (f"{SAMPLER}.max_off_policy_strategy=wiat",)),
    ("verl_validation", ("actor_rollout_ref.actor.loss_agg_mode=token_mean",)),
    ("batch_sizes", ("actor_rollout_ref.actor.use_dynamic_bsz=true", f"{DYNAMIC}=false")),
    ("verl_validation", (KL, "actor_rollout_ref.ref.fsdp_config.strategy=fdsp")),
    ("verl_validation", (KL, "actor_rollout_ref.ref.loss_agg_mode=token_mean")),
    ("verl_validation", ("distillation.enabled=true",)),
    ("verl_validation", (*DISTILLED, "distillation.distillation_loss.loss_mode=k9")),
    ("verl_validation", (*DISTILLED, KL, "distillation.distillation_loss.loss_mode=k9")),
    ("dynamic_sampling", ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=null")),
    ("value_types", ("trainer.total_epochs=many", "trainer.total_training_steps=null")),
    ("value_types", ("trainer.total_epochs=[1]",)),
    ("value_types", ("data.train_batch_size=lots",)),
    ("unknown_keys", ("++actor_rollout_ref.actor.clip_ration=0.1",)),
    ("unknown_keys", ("++actor_rollout_ref.rollout.temprature=0.5",)),
]
"""The check that finds a fault, and the fault, which ends a start."""


@functools.cache
def _base() -> Composed:
    return compose(BROKEN, "base", [SEARCH])


@functools.cache
def _base_config() -> bytes:
    return pickle.dumps(_base().config)


def config_with(overrides: Sequence[str]) -> DictConfig:
    """Returns what hydra would compose, which takes longer than all that is looked at here."""
    config = pickle.loads(_base_config())
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        # The root of the base has been moved already.
        key = place_of(key) if key.startswith("agentic.") else key
        OmegaConf.update(config, key, yaml.safe_load(value), merge=True, force_add=True)
    prepare(config)
    return config


def composed_with(overrides: Sequence[str]) -> Composed:
    config = config_with(overrides)
    plain = preflight_compose._to_plain_data(config, "", [])
    return dataclasses.replace(_base(), config=config, plain=plain)


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rows are there; the model is not looked at."""
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(plan_run, "_has_model", lambda run, notes: False)
    monkeypatch.setattr(preflight_compose, "compose", lambda config_dir, name, overrides: composed_with(overrides))
    folder = tmp_path_factory.getbasetemp() / "faults"
    if not (folder / "train.parquet").is_file():
        rows = make_rows(load_env_package("python_math"), split="train", count=28, seed=0, options=None)
        records = to_records(rows, env_id="python_math", split="train", agent_name="env_agent")
        write_parquet(records[:24], folder / "train.parquet")
        write_parquet(records[24:], folder / "test.parquet")
        write_parquet(records[:4], folder / "copied.parquet")
    for name, value in {"CONFIGS": BROKEN, "MODEL": tiny_model, "DATA": folder}.items():
        monkeypatch.setenv(f"PREFLIGHT_{name}", str(value))


def found(*overrides: str) -> dict[str, str]:
    """Check -> the worst of what it found."""
    results = judge(plan_run.plan(BROKEN, "base", overrides))
    order = {"ok": 0, "not tested": 0, "warn": 1, "fail": 2}
    worst: dict[str, str] = {}
    for result in results:
        if order[result.status] > order.get(worst.get(result.check, "ok"), 0):
            worst[result.check] = result.status
    return worst


class WeightsAsked(Exception):
    """A worker has read its sections and loads weights now."""


def make_worker(config: Any, role: str) -> None:
    """Runs what a worker runs before it loads weights."""

    def load(config: Any) -> None:
        raise WeightsAsked

    worker: Any = object.__new__(ActorRolloutRefWorker)
    worker.config, worker.role = config, role
    worker.distillation_enabled, worker._omega_profiler_config = False, config[role].get("profiler")
    worker.ref_worker_cls = worker.actor_worker_cls = load
    with pytest.raises(WeightsAsked):
        worker.init_model()


def start(overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs what a start runs, as far as it needs neither Ray nor weights; warnings end no start."""
    warnings.simplefilter("ignore")  # until the end of the test, as pytest has it
    config = config_with(overrides)
    device.auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    OmegaConf.resolve(config)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    for role in ("ref", "actor") if need_reference_policy(config) else ("actor",):
        make_worker(copy.deepcopy(config.actor_rollout_ref), role)
    if config.distillation.enabled:
        omega_conf_to_dataclass(config.distillation)
    trainer: Any = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.tokenizer = trainer.processor = None
    monkeypatch.setattr(trainer_base, "create_rl_dataset", lambda *args, **kwargs: [{}] * 24)
    trainer._init_dataloader()
    range(trainer.total_training_steps)
    get_adv_estimator_fn(config.algorithm.adv_estimator)
    get_policy_loss_fn(OmegaConf.select(config, f"{LOSS}.loss_mode"))


@pytest.mark.sample(1, slow=6)
@pytest.mark.parametrize(("check", "overrides"), ENDS, ids=lambda one: one if isinstance(one, str) else one[0][-60:])
def test_a_fault_that_ends_a_start_is_found(
    check: str, overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if check == "sections":  # verl has nothing to do with it
        monkeypatch.setattr(preflight_compose, "_of_verl", lambda config: ())
    assert found(*overrides).get(check) == "fail"
    ours = check in ("sections", "plugin")
    with pytest.raises(AgenticError if ours else Exception):  # verl's are of many kinds
        start(overrides, monkeypatch)


@pytest.mark.sample(1)
@pytest.mark.parametrize("override", ["data.val_files=null", "data.val_files=[]", "data.train_files=null"])
def test_files_that_verl_opens_without_need_are_demanded(override: str, tiny_chat: Any) -> None:
    assert found(override).get("data_files") == "fail"
    files = None if override.endswith("null") else []
    with pytest.raises(Exception):  # noqa: B017, PT011 -- verl's are of many kinds
        trainer_base.create_rl_dataset(files, config_with((override,)).data, tiny_chat[0], None)


SOUND: list[tuple[str, ...]] = [
    (),
    ("algorithm.adv_estimator=dr_grpo",),
    ("algorithm.adv_estimator=lite_ppo", OURS),
    ("algorithm.adv_estimator=turn_group", OURS, f"{CREDIT}={{options: {{gamma: 1.0}}, clip: 5}}"),
    ("algorithm.adv_estimator=batch_baseline", "actor_rollout_ref.rollout.n=1"),
    ("algorithm.adv_estimator=remax",),
    ("algorithm.adv_estimator=reinforce_plus_plus", "actor_rollout_ref.rollout.n=1"),
    (f"{AG}.health.actions={{default: log, gradient: stop}}", f"{AG}.health.thresholds.gradient={{patience: 3}}"),
    (f"{AG}.waiting={{stuck_after_s: 60, report_every_s: 2.5}}",),
    (f"{AG}.log={{dir: somewhere, file_mb: 1}}", f"{AG}.audit=warn"),
    (f"{AG}.temperature_schedule={{start: 1.2, end: 0.7, steps: 10}}", f"{AG}.max_void_share=0.2"),
    (f"{AG}.compaction={{strategy: drop_observations}}",),
    (f"{CURRICULUM}={{name: learnability}}", "data.dataloader_num_workers=0"),
    (f"{KWARGS}={{gates: [void_groups, zero_variance], keep_surplus: 1}}",),
    (f"{KWARGS}={{poll_interval_s: 0.1}}",),
    (f"{LOSS}.loss_mode=masked_ppo", f"++{LOSS}.options={{kl: k1}}"),
    (f"{LOSS}.loss_mode=gspo",),
    (f"{LOSS}.loss_mode=pacs",),
    ("++agentic.length_lr={reference_tokens: 64}",),
    ("++algorithm.prompt_information={every: 5}", OURS),
    ("++agentic.rubric={components: [{use: math, weight: 1}]}",),
    ("++actor_rollout_ref.rollout.engine_kwargs.agentic={prefill_tokens: 64}",),
    ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=reward"),
    (KL,),
    ("algorithm.use_kl_in_reward=true",),
    DISTILLED,
    *(
        (
            f"{CREDIT}={{options: {{{option}}}}}",
            f"algorithm.adv_estimator={name}",
            OURS,
            "actor_rollout_ref.rollout.n=1",
        )
        for name, option in (
            ("spa", "norm: none"),
            ("token_baseline", "keep_alone: true"),
            ("safe_grpo", "singleton: raw"),
        )
    ),
    ("trainer.total_training_steps=7", "trainer.max_actor_ckpt_to_keep=2", "data.seed=1"),
]


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("overrides", SOUND, ids=lambda one: one[0][-60:] if one else "base")
def test_a_sound_configuration_has_no_fault_and_starts(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = found(*overrides)
    assert "fail" not in checks.values(), checks
    start(overrides, monkeypatch)


@pytest.mark.slow
def test_a_loss_of_the_user_is_judged_as_one_of_ours() -> None:
    address = "verl_agentic.methods.policy_losses.pacs:pacs"
    assert "fail" not in found(f"{LOSS}.loss_mode={address}").values()
    assert found(f"{LOSS}.loss_mode=no_such/file.py:loss", OURS).get("policy_loss") == "fail"


def test_a_temperature_of_0_fails() -> None:
    assert found("actor_rollout_ref.rollout.temperature=0").get("sampling") == "fail"


@needs_verl(AFTER_MAIN, "_scale_logits_by_temperature")
def test_at_temperature_0_the_tokens_that_are_sampled_have_no_gradient() -> None:
    for temperature, teaches in ((0.0, False), (1.0, True)):
        logits = torch.tensor([0.0, 1.0], requires_grad=True)
        scale = transformer_impl._scale_logits_by_temperature
        divided = scale(logits, torch.tensor(temperature), is_unit_temperature=False)
        divided.log_softmax(dim=-1)[1].backward()  # the likeliest one
        assert logits.grad is not None and bool(logits.grad.any()) == teaches


def test_verls_group_estimators_take_nothing_off_where_a_group_is_one() -> None:
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    mask, alone, pairs = torch.ones_like(rewards), np.arange(4), np.arange(4) // 2
    bare = rewards.sum(dim=1, keepdim=True) * mask
    for name, uncompared in (("grpo", bare), ("gdpo", masked_whiten(bare, mask))):
        compute: Any = get_adv_estimator_fn(name)
        torch.testing.assert_close(compute(rewards, mask, index=alone)[0], uncompared, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(compute(rewards, mask, index=pairs)[0], uncompared, atol=0.1)


@pytest.mark.slow
def test_validation_rows_that_were_copied_are_warned_of() -> None:
    assert found().get("holdout") is None
    copied = "data.val_files=${oc.env:PREFLIGHT_DATA}/copied.parquet"
    assert found(copied).get("holdout") == "warn"
    train, val = (config_with([copied]).data[f"{split}_files"] for split in ("train", "val"))
    prompts = [pq.read_table(files)["prompt"].to_pylist() for files in (train, val)]
    assert prompts[1] and all(prompt in prompts[0] for prompt in prompts[1])


@pytest.mark.slow
def test_a_misspelt_key_leaves_the_one_that_was_meant_as_it_is() -> None:
    misspelt = {
        "algorithm.norm_adv_by_std_in_grpo": "++algorithm.norm_adv_by_std_in_grop=false",
        "trainer.save_freq": "++trainer.save_freqency=10",
        "data.shuffle": "++data.shufle=false",
    }
    for override in misspelt.values():
        assert found(override).get("unknown_keys") == "fail", override
    sound, faulty = (compose(BROKEN, "base", [SEARCH, *some]).plain for some in ([], misspelt.values()))
    for section, key in (meant.split(".") for meant in misspelt):
        assert faulty[section][key] == sound[section][key]


FAULTS_OF_A_RUN: list[tuple[str, str, tuple[str, ...]]] = [
    ("sizes", "fail", ("actor_rollout_ref.rollout.n=0",)),
    ("sizes", "fail", ("trainer.total_training_steps=0",)),
    ("files", "fail", ("trainer.resume_mode=resume_path",)),
    ("files", "fail", ("trainer.default_local_dir=/proc/nope",)),
    ("files", "fail", (f"{AG}.log.dir=/dev/null",)),
    ("files", "not tested", ("trainer.default_local_dir=hdfs://there/run",)),
    ("files", "not tested", ("data.train_files=hdfs://there/train.parquet",)),
    ("rows", "not tested", ("data.train_files=hdfs://there/train.parquet",)),
    ("reward", "fail", ("reward.custom_reward_function.path=pkg://json", "reward.custom_reward_function.name=lods")),
    ("reward", "not tested", ()),
    ("prompt", "not tested", ()),
    ("switched_off", "warn", ("actor_rollout_ref.actor.use_kl_loss=false",)),  # beside the coefficient of the base
    ("switched_off", "warn", ("algorithm.kl_ctrl.kl_coef=0.01",)),
    ("learning", "fail", ("actor_rollout_ref.actor.optim.lr=0",)),
    ("value_types", "fail", ("algorithm.rollout_correction.rollout_is_threshold=0.5_2",)),
    ("value_types", "fail", ("algorithm.rollout_correction.rollout_is_threshold=1_2",)),
    ("value_types", "fail", ("algorithm.rollout_correction.rollout_rs_threshold=0.5_2",)),
    ("value_types", "ok", ("algorithm.rollout_correction.rollout_is_threshold='0.5_2'",)),
    ("value_types", "ok", ("algorithm.rollout_correction.rollout_is_threshold=0.5_2.0",)),
    ("value_types", "ok", ("algorithm.rollout_correction.rollout_is_threshold=2.5",)),
    ("value_types", "ok", ("algorithm.rollout_correction.rollout_rs_threshold='0.5_2,0.9_1.1'",)),
    ("policy_loss", "warn", ("actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",)),
    ("episode_settings", "fail", (f"{AG}.exploration.partial_solution=0.5",)),
    ("machine", "not tested", ("actor_rollout_ref.rollout.name=sglang",)),
]


@pytest.mark.sample(2, slow=8)
@pytest.mark.parametrize(
    ("check", "status", "overrides"),
    FAULTS_OF_A_RUN,
    ids=lambda one: one if isinstance(one, str) else "+".join(one)[-60:],
)
def test_what_spoils_a_run_or_cannot_be_tested_is_found(check: str, status: str, overrides: tuple[str, ...]) -> None:
    findings = judge(plan_run.plan(BROKEN, "base", overrides))
    assert status in {finding.status for finding in findings if finding.check == check}, findings


def _keys(tree: dict[str, Any], path: str = "") -> list[str]:
    """Returns the dotted paths of all values."""
    found = []
    for key, value in tree.items():
        place = f"{path}{key}"
        found += _keys(value, f"{place}.") if isinstance(value, dict) and value else [place]
    return found


@pytest.mark.slow
@settings(max_examples=10)
@given(st.data())
def test_no_value_of_any_key_ends_preflight_itself(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(_keys(_base().plain)))
    value = data.draw(
        st.sampled_from(["0", "-1", "null", "x", "[]", "{}", "[1, 2]", "{a: 1}", ".nan", "1e9", "true", "''"])
    )
    findings = judge(plan_run.plan(BROKEN, "base", (f"{key}={value}",)))
    assert {finding.check for finding in findings} >= {"sizes", "learning", "unknown_keys"}
