"""A dry run's configuration: what a CPU needs is changed and told, what the user chose stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from markupsafe import escape
from omegaconf import OmegaConf

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.paths import recipes_dir
from verl_agentic.base.types import Message
from verl_agentic.checks.cli.dryrun.model import make_model
from verl_agentic.checks.cli.dryrun.plan import DryrunOptions, DryrunPlan, make_plan
from verl_agentic.checks.cli.dryrun.show import write_page
from verl_agentic.checks.cli.dryrun.translate import Translation, cpu_settings, translate
from verl_agentic.checks.dryrun.step_report import Report, Stage
from verl_agentic.cli import main
from verl_agentic.cpu.tiny_model import make_tiny_model, make_tiny_tokenizer
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.files.rows import write_rows
from verl_agentic.verl.extensions.preflight.compose import compose

pytest.importorskip("verl")
_GPU = """
defaults: [ppo_trainer, agentic/plugin, _self_]
hydra: {searchpath: [pkg://verl_agentic.config]}
algorithm: {adv_estimator: turn_grpo, rollout_correction: {rollout_is: token}}
data: {train_batch_size: 256, max_prompt_length: 2048, max_response_length: 16384}
actor_rollout_ref:
  model:
    path: /models/none-here
    use_remove_padding: true
    override_config: {attn_implementation: flash_attention_2}
  actor:
    strategy: fsdp
    ppo_mini_batch_size: 64
    policy_loss: {loss_mode: gspo}
    ulysses_sequence_parallel_size: 4
    optim: {lr: 2.0e-6, lr_warmup_steps: 20}
    fsdp_config: {param_offload: true, optimizer_offload: true, model_dtype: bf16, fsdp_size: 8}
  rollout:
    name: vllm
    n: 16
    tensor_model_parallel_size: 4
    dtype: bfloat16
    gpu_memory_utilization: 0.8
    temperature: 0.9
    multi_turn: {format: qwen3_coder}
    agent: {default_agent_loop: env_agent, num_workers: 16}
    custom:
      agentic:
        env: python_math
        protocol: chat
        limits: {max_turns: 7}
        compaction: {strategy: drop_observations}
trainer: {n_gpus_per_node: 8, nnodes: 4, logger: [console, wandb], save_freq: 20, test_freq: 10, critic_warmup: 5}
"""


def _translated(folder: Path, text: str = _GPU, *overrides: str, own_tokenizer: bool = True) -> Translation:
    (folder / "run.yaml").write_text(text)
    config = compose(folder, "run", overrides).config
    return translate(config, out=folder / "out", own_tokenizer=own_tokenizer)


def _plan(folder: Path, *overrides: str, recipe: str = "quickstart", **options: Any) -> DryrunPlan:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return make_plan(
        DryrunOptions(config_dir=recipes_dir() / recipe, config_name="grpo", overrides=overrides, out=out, **options)
    )


@pytest.mark.slow
def test_a_configuration_for_many_gpus_becomes_one_for_a_cpu(tmp_path: Path) -> None:
    made = _translated(tmp_path)
    for key, value in cpu_settings():
        if key != "trainer.logger":
            assert made.get(key) == value, key
    for key, value in {
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.rollout.name": "agentic",
        "actor_rollout_ref.rollout.dtype": "float32",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 1,
        "actor_rollout_ref.actor.fsdp_config.param_offload": False,
        "actor_rollout_ref.actor.fsdp_config.fsdp_size": -1,
        "actor_rollout_ref.actor.optim.lr_warmup_steps": 0,
        "data.train_batch_size": 2,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 1,
        "actor_rollout_ref.rollout.n": 4,
        "data.max_response_length": 1024,
        "trainer.n_gpus_per_node": 1,
        "trainer.total_training_steps": 1,
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.critic_warmup": 0,
    }.items():
        assert made.get(key) == value, key


@pytest.mark.slow
def test_what_was_chosen_stays_and_every_change_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_GPU)
    before = compose(tmp_path, "run", ["algorithm.gamma=0.9"]).config
    made = _translated(tmp_path, _GPU, "algorithm.gamma=0.9")
    for key in (
        *("algorithm", "reward", "actor_rollout_ref.actor.policy_loss", "actor_rollout_ref.actor.optim.lr"),
        *("actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.multi_turn"),
        *("actor_rollout_ref.rollout.custom.agentic.limits", "actor_rollout_ref.rollout.custom.agentic.compaction"),
        "actor_rollout_ref.rollout.agent.default_agent_loop",
    ):
        was, now = OmegaConf.select(before, key), OmegaConf.select(made.config, key)
        if key == "reward":
            now.num_workers = was.num_workers
        assert was == now, key
    told = {change.key: change for change in made.changes}
    assert str(told["actor_rollout_ref.rollout.name"]) == "actor_rollout_ref.rollout.name: vllm -> agentic"
    # Put back, value by value, it is the configuration that it was.
    for change in reversed(made.changes):
        if change.before is not None:
            OmegaConf.update(made.config, change.key, change.before, merge=False, force_add=True)
    for key in told:
        assert made.get(key) == Translation(config=before).get(key) or told[key].before is None, key


@pytest.mark.slow
def test_a_smaller_group_still_branches(tmp_path: Path) -> None:
    branching = "agentic.branching={initial: 8, beam: 2}"
    made = _translated(tmp_path, _GPU, "actor_rollout_ref.rollout.n=16", branching)
    assert made.get("actor_rollout_ref.rollout.n") == 4
    assert made.get("actor_rollout_ref.rollout.custom.agentic.branching") == {"initial": 2, "beam": 2}


@pytest.mark.slow
def test_a_loss_that_compares_siblings_gets_a_whole_group_at_a_time(tmp_path: Path) -> None:
    key, mode = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "actor_rollout_ref.actor.policy_loss.loss_mode"
    row = _translated(tmp_path).get(key)
    assert _translated(tmp_path, _GPU, f"{mode}=pacs").get(key) == 4 * row


@pytest.mark.slow
def test_engines_of_megatron_become_fsdp_with_what_both_have(tmp_path: Path) -> None:
    fsdp_only = ("    strategy: fsdp\n", "    ulysses_sequence_parallel_size: 4\n", "    fsdp_config: {")
    lines = [line for line in _GPU.splitlines(keepends=True) if not line.startswith(fsdp_only)]
    text = "".join(lines).replace("ppo_trainer,", "ppo_megatron_trainer,")
    made = _translated(tmp_path, text, "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4")
    actor = OmegaConf.select(made.config, "actor_rollout_ref.actor")
    assert actor.strategy == "fsdp2" and actor.fsdp_config.strategy != "megatron" and "megatron" not in actor
    assert (actor.optim.lr, actor.policy_loss.loss_mode, actor.ppo_mini_batch_size) == (2e-6, "gspo", 1)
    assert actor._target_.endswith("FSDPActorConfig")
    assert any(change.key == "actor_rollout_ref.actor.strategy" for change in made.changes)


@pytest.mark.slow
def test_a_critic_that_is_not_trained_is_not_told_of(tmp_path: Path) -> None:
    assert not [change for change in _translated(tmp_path).changes if change.key.startswith("critic.")]
    text = _GPU.replace("adv_estimator: turn_grpo", "adv_estimator: gae")
    changed = {change.key for change in _translated(tmp_path, text).changes}
    assert {"critic.strategy", "critic.fsdp.dtype"} <= changed


@pytest.mark.slow
def test_a_reward_model_of_verl_s_is_not_translated(tmp_path: Path) -> None:
    made = _translated(tmp_path, _GPU, "reward.reward_model.enable=true")
    assert "reward.reward_model.enable=true" in made.untranslated[0]
    with pytest.raises(ConfigError, match=r"reward\.reward_model\.enable"):
        _plan(tmp_path, "reward.reward_model.enable=true")


@pytest.mark.slow
def test_another_tokenizer_gets_more_room_and_the_own_one_what_was_asked(tmp_path: Path) -> None:
    made = _translated(tmp_path, _GPU, "data.max_prompt_length=64", "data.max_response_length=128")
    assert (made.get("data.max_prompt_length"), made.get("data.max_response_length")) == (64, 128)
    made = _translated(tmp_path, _GPU, "data.max_prompt_length=64", "data.max_response_length=128", own_tokenizer=False)
    assert (made.get("data.max_prompt_length"), made.get("data.max_response_length")) == (1024, 512)


def test_a_recipe_without_model_and_rows_gets_both_and_a_script(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    assert "quickstart's tokenizer" in plan.model.description and "16 rows that python_math makes" in plan.rows
    assert plan.policy.startswith("the environment's solution generates 1 of 4 sessions")
    assert plan.expected.scripted
    path = plan.write(tmp_path / "out", ray_folder=str(tmp_path / "ray"))
    written = yaml.safe_load(path.read_text())
    assert written["actor_rollout_ref"]["rollout"]["custom"]["agentic"]["external_sessions"] == 1
    # The plugin is still asked for when the run starts.
    assert "verl_agentic:plugin" in written["actor_rollout_ref"]["rollout"]["custom"]["agentic"]["required"]


def test_the_user_s_tokenizer_and_template_are_the_tiny_model_s(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tiny_tokenizer(tmp_path / "theirs")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    theirs.add_tokens(["<|a new one|>"])
    theirs.chat_template = "{{ messages[0].content }} of theirs"
    theirs.save_pretrained(tmp_path / "theirs")
    made = make_model(tmp_path / "tiny", choice="tiny", path=str(tmp_path / "theirs"))
    assert made.has_own_tokenizer
    tokenizer = AutoTokenizer.from_pretrained(made.folder)
    assert tokenizer.chat_template == theirs.chat_template and len(tokenizer) == len(theirs)
    assert AutoModelForCausalLM.from_pretrained(made.folder).config.vocab_size == len(theirs)


def test_a_model_folder_is_used_as_it_is(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "mine", seed=3)
    made = make_model(tmp_path / "tiny", choice=str(tmp_path / "mine"), path=None)
    assert made.folder == tmp_path / "mine" and not (tmp_path / "tiny").exists()
    with pytest.raises(ConfigError, match=r"config\.json"):
        make_model(tmp_path / "tiny", choice="large", path=None)


@pytest.mark.slow
def test_a_reward_model_is_the_tiny_one_too(tmp_path: Path) -> None:
    plan = _plan(
        tmp_path,
        "+algorithm.implicit_reward={model_path: /models/phi, beta: 0.5}",
        "actor_rollout_ref.actor.use_kl_loss=true",
    )
    section = plan.translation.get("algorithm.implicit_reward")
    assert section == {"model_path": str(plan.model.folder), "beta": 0.5}
    assert _plan(tmp_path).translation.get("algorithm.implicit_reward") is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("key", ["data.train_files", "actor_rollout_ref.model.path"])
def test_a_value_that_leads_nowhere_is_an_error_and_not_replaced(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} cannot be resolved, got {key}.*NO_SUCH_VARIABLE"):
        _plan(tmp_path, f"{key}='${{oc.env:NO_SUCH_VARIABLE}}/a'")


@pytest.mark.slow
def test_rows_that_are_not_there_are_an_error_and_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.train_files"):
        _plan(tmp_path, "data.train_files=/none/rows.parquet")


@pytest.mark.slow
def test_rows_that_verls_dataset_changes_are_an_error(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_json_lines([{"prompt": [], "reward_model": {"ground_truth": "2024-01-02"}}], rows)
    with pytest.raises(DataError, match=r"reward_model\.ground_truth"):
        _plan(tmp_path, f"data.train_files={rows}")


@pytest.mark.slow
def test_rows_without_a_known_solution_are_sampled_and_a_script_is_refused(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_rows([EnvRow(prompt=(Message("user", "Sort a list."),), ground_truth="[]")], rows)
    plan = _plan(tmp_path, f"data.train_files={rows}", recipe="code_tests")
    assert plan.policy.startswith("all sessions are sampled: the solution of a row is unknown")
    assert not plan.expected.scripted
    with pytest.raises(ConfigError, match="--policy"):
        _plan(tmp_path, f"data.train_files={rows}", recipe="code_tests", policy="scripted")


@pytest.mark.slow
def test_a_policy_that_answers_its_own_searches_is_sampled(tmp_path: Path) -> None:
    own = ("agentic.protocol=search_r1", "agentic.protocol_options={self_written: true}")
    plan = _plan(tmp_path, *own, recipe="search_qa")
    assert plan.policy.startswith("all sessions are sampled: the policy writes the observations itself")
    assert _plan(tmp_path, own[0], recipe="search_qa").expected.scripted


@pytest.mark.slow
def test_sampling_is_a_choice(tmp_path: Path) -> None:
    plan = _plan(tmp_path, policy="sampled")
    assert plan.translation.get("actor_rollout_ref.rollout.custom.agentic.external_sessions") is None


@pytest.mark.slow
def test_a_configuration_that_hydra_refuses_is_an_error_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ["--config-dir", str(recipes_dir() / "quickstart"), "--config-name", "grpo"]
    assert main(["dryrun", *recipe, "algorithm.no_such_key=1", "--out", str(tmp_path)]) == 2
    assert "no_such_key" in capsys.readouterr().err
    assert main(["dryrun", "--config-dir", str(tmp_path), "--config-name", "none", "--out", str(tmp_path)]) == 2
    assert "cannot be composed" in capsys.readouterr().err
    (tmp_path / "broken.yaml").write_text("a: [b")
    assert main(["dryrun", "--config-dir", str(tmp_path), "--config-name", "broken", "--out", str(tmp_path)]) == 2
    assert "broken.yaml" in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_has_every_changed_value_under_its_reason(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    write_page(tmp_path / "report.html", plan, Report(stages=[Stage(name="start")], proof=None), seconds=1.0, log="l")
    html = (tmp_path / "report.html").read_text()
    assert f"{len(plan.translation.changes)} values are not those of your configuration" in html
    assert all(str(escape(str(change))) in html for change in plan.translation.changes)
