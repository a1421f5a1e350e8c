"""The symbols that the adapters use from verl: a new verl fails here, by name, before it fails in a run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import verl
from patch_scan import assigned_attributes, bindings, declared_patches, is_verl, sources
from verl_versions import is_meant

from verl_agentic.adapters.patching import patches
from verl_agentic.agent_loops.codec.turn_boundary import ContextBuilder
from verl_agentic.plugin import ADAPTERS, state


@dataclass(frozen=True, kw_only=True)
class Use:
    """One symbol of verl and what an adapter expects of it."""

    adapter: str
    """File below `verl_agentic/adapters`, or `plugin`."""
    symbol: str
    """`module:name.name`; `module:` for a module."""
    call: str | None = None
    """Arguments that are given: positional ones by the name of their parameter, keywords with `=`."""
    replaced: str | None = None
    """Parameters of our function that takes the place of verl's, or is put around it."""
    overrides: dict[str, str | None] = field(default_factory=dict)
    """Method of a base class -> all its parameters; None for a property."""
    has: str = ""
    """Attributes or fields of the instances."""
    versions: str = ""
    """Versions of verl that an adapter uses it with; empty for all."""


_PLATFORM: dict[str, str | None] = {
    **dict.fromkeys(("device_module", "device_name", "vendor_name")),
    **dict.fromkeys(
        (
            *("communication_backend_name", "cudart", "current_device", "device_count", "empty_cache", "is_available"),
            *("is_ipc_supported", "profiler_start", "profiler_stop", "ray_noset_envvars", "ray_resource_name"),
            *("rollout_env_vars", "visible_devices_envvar"),
        ),
        "",
    ),
    **dict.fromkeys(("get_device_capability", "set_device", "synchronize"), "device_index"),
    **dict.fromkeys(("manual_seed", "manual_seed_all"), "seed"),
    "is_platform_available": "use_smi_check",
    "nvtx_range": "msg",
    "set_allocator_settings": "settings",
}
_ENGINE_OVERRIDES: dict[str, str | None] = {
    "__init__": "model_config, engine_config, optimizer_config, checkpoint_config",
    "forward_backward_batch": "data, loss_function, forward_only",
    "_build_fsdp_module": "module",
    "_merged_lora_per_tensor_param": "",
}
_CHECKPOINT_OVERRIDES: dict[str, str | None] = {
    "prepare": "",
    "build_topology": "actor_wg_world_size, rollout_world_size, metadata",
    "init_process_group": "**kwargs",
    "finalize": "",
    "send_weights": "weights, global_steps",
    "receive_weights": "global_steps",
}
_BUFFER_OVERRIDES: dict[str, str | None] = {
    "__init__": "trainer_mode, trainer_config, max_off_policy_threshold, max_off_policy_strategy, sampler_kwargs, "
    "poll_interval, refill_fn, filter_groups_metric, train_batch_size, gen_batch_size, max_inflight_gen_batches, "
    "sync_refill_failed_groups",
    "sample": "global_steps, partition_id, batch_size",
    "_sync_metadata_from_transfer_queue": "",
    "_terminal_eviction_reasons": "global_steps, partition_id",
    "_dapo_filtered_keys": "partition_id",
    "_sampleable_terminal_keys": "partition_id, eviction_reasons",
    "_select_prompt_uids": "partition_id, sampleable_keys, batch_size",
    "_clear_groups": "partition_id, uids",
    "_materialize_batch": "partition_id, selected_prompt_uids, partition_snapshot",
    "_wait_for_next_poll": "partition_id, last_debug_time",
}
_BUFFER_HAS = (
    "poll_interval, partitions, pending_keys, running_keys, finished_keys, failure_keys, train_batch_size, "
    "sync_refill_failed_groups"
)
_TRAINER_OVERRIDES: dict[str, str | None] = {
    "__init__": "config",
    "_setup": "",
    "_next_train_batch": "num_prompts",
    "_balance_batch": "batch, metrics, logging_prefix, keep_minibatch",
    **dict.fromkeys(("_compute_old_log_prob", "_compute_advantage", "_update_actor"), "batch, metrics"),
}
_TRANSFORMER_IMPL = "verl.workers.engine.fsdp.transformer_impl"
_TRAINER_BASE = "verl.trainer.ppo.v1.trainer_base"
_WIRING = "verl.utils.tokenizer.continuous_token_wiring"

_WRITTEN = (
    Use(adapter="plugin", symbol="verl.utils.device:"),
    Use(adapter="features", symbol="verl.utils.device:"),
    Use(adapter="features", symbol="verl.plugin.platform:"),
    Use(adapter="features", symbol="verl.utils.distributed:"),
    Use(adapter="features", symbol="verl.utils.model:"),
    Use(adapter="features", symbol="verl.utils.torch_functional:"),
    Use(adapter="features", symbol="verl.workers.engine:"),
    Use(adapter="features", symbol="verl.workers.rollout.replica:"),
    Use(adapter="features", symbol="verl.experimental.agent_loop:"),
    Use(adapter="features", symbol="verl.checkpoint_engine.base:"),
    Use(adapter="features", symbol="verl.experimental.reward_loop.reward_manager:"),
    Use(adapter="features", symbol="verl.trainer.ppo.core_algos:"),
    Use(adapter="features", symbol="verl.utils.checkpoint.checkpoint_manager:"),
    Use(adapter="features", symbol="verl.trainer.ppo.v1.replay_buffer:"),
    Use(adapter="features", symbol="verl.trainer.ppo.v1.trainer_base:"),
    Use(adapter="features", symbol="verl.trainer.ppo.v1:"),
    Use(adapter="features", symbol="verl.workers.config.actor:"),
    Use(adapter="features", symbol="verl.workers.engine.fsdp.transformer_impl:"),
    Use(adapter="features", symbol="verl.workers.utils.losses:"),
    Use(adapter="features", symbol="verl.workers.engine_workers:"),
    Use(
        adapter="trainer/schedules",
        symbol="verl.trainer.ppo.v1.trainer_base:PPOTrainer",
        has="config, global_steps",
    ),
    Use(adapter="dryrun/step_probe", symbol="verl.experimental.agent_loop:"),
    Use(adapter="dryrun/step_probe", symbol="verl.trainer.ppo.v1.trainer_base:"),
    Use(adapter="dryrun/step_probe", symbol="verl.workers.engine.base:"),
    Use(adapter="dryrun/step_probe", symbol="verl.workers.rollout.llm_server:"),
    Use(
        adapter="trainer/extra_rows",
        symbol="verl.utils.tensordict_utils:list_of_dict_to_tensordict",
        call="list_of_dicts",
    ),
    Use(
        adapter="trainer/extra_rows",
        symbol="verl.workers.utils.padding:response_from_nested",
        call="tensor, response_mask",
    ),
    Use(adapter="reward/verl_scores", symbol="verl.experimental.agent_loop.agent_loop:AgentLoopOutput"),
    Use(
        adapter="reward/verl_scores",
        symbol="verl.experimental.agent_loop.tool_parser:ToolParser.get_tool_parser",
        call="name, tokenizer",
    ),
    Use(
        adapter="reward/verl_scores",
        symbol="verl.experimental.agent_loop.tool_parser:ToolParser.extract_tool_calls",
        call="self, responses_ids",
    ),
    Use(adapter="preflight/plan_run", symbol="verl.experimental.agent_loop.agent_loop:_agent_loop_registry"),
    Use(adapter="preflight/plan_run", symbol="verl.experimental.agent_loop.tool_parser:ToolParser._registry"),
    Use(adapter="preflight/plan_run", symbol="verl.experimental.reward_loop.reward_manager.registry:REWARD_MANAGER"),
    Use(adapter="preflight/plan_run", symbol="verl.trainer.main_ppo:"),
    Use(adapter="preflight/plan_run", symbol="verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY"),
    Use(adapter="preflight/plan_run", symbol="verl.trainer.ppo.core_algos:POLICY_LOSS_REGISTRY"),
    Use(adapter="preflight/plan_run", symbol="verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY"),
    Use(adapter="preflight/plan_run", symbol="verl.utils.tracking:Tracking.supported_backend"),
    Use(adapter="preflight/compose", symbol="verl.trainer.ppo.utils:need_critic"),
    Use(adapter="preflight/compose", symbol="verl.trainer.ppo.utils:need_reference_policy"),
    Use(adapter="preflight/compose", symbol="verl.trainer.ppo.v1:get_trainer_cls", call="name"),
    Use(adapter="preflight/compose", symbol="verl.trainer:"),
    Use(adapter="preflight/compose", symbol="verl.utils.config:omega_conf_to_dataclass"),
    Use(adapter="preflight/compose", symbol="verl.utils.config:validate_config"),
    Use(adapter="preflight/compose", symbol="verl.utils.device:auto_set_device"),
    Use(adapter="preflight/compose", symbol="verl:"),
    Use(adapter="preflight/compose", symbol="verl:trainer.__path__"),
    Use(adapter="preflight/gold_episodes", symbol="verl.utils.reward_score:default_compute_score"),
    Use(adapter="preflight/first_prompt", symbol="verl.experimental.agent_loop.agent_loop:DictConfigWrap"),
    Use(adapter="preflight/first_prompt", symbol="verl.experimental.agent_loop.agent_loop:ToolListWrap"),
    Use(adapter="preflight/first_prompt", symbol="verl.experimental.agent_loop.agent_loop:_agent_loop_registry"),
    Use(adapter="preflight/first_prompt", symbol="verl.experimental.agent_loop.tool_parser:ToolParser"),
    Use(adapter="preflight/first_prompt", symbol="verl.tools.tool_registry:load_all_tools"),
    Use(adapter="preflight/first_prompt", symbol="verl.utils.config:omega_conf_to_dataclass"),
    Use(adapter="preflight/first_prompt", symbol="verl.utils.dataset.rl_dataset:get_dataset_class"),
    Use(adapter="preflight/first_prompt", symbol="verl.experimental.agent_loop.agent_loop:resolve_config_path"),
    Use(adapter="preflight/rows_as_verl", symbol="verl.trainer.ppo.utils:create_rl_dataset"),
    Use(adapter="preflight/rows_as_verl", symbol="verl:"),
    Use(adapter="preflight/rows_as_verl", symbol="verl:__path__"),
    Use(
        adapter="checkpoints/checkpoint_retention",
        symbol="verl.utils.checkpoint.checkpoint_manager:BaseCheckpointManager",
        has="previous_saved_paths",
    ),
    Use(
        adapter="monitoring/health_actions",
        symbol="verl.checkpoint_engine.base:CheckpointEngineManager.update_weights",
        call="self, global_steps",
    ),
    Use(
        adapter="monitoring/health_actions",
        symbol="verl.checkpoint_engine.base:CheckpointEngineManager.sleep_replicas",
        call="self",
    ),
    Use(
        adapter="monitoring/health_actions",
        symbol="verl.workers.engine_workers:ActorRolloutRefWorker.load_checkpoint",
        call="self, local_path=, del_local_after_load=",
    ),
    Use(
        adapter="monitoring/health_actions",
        symbol="verl.workers.engine_workers:TrainingWorker.load_checkpoint",
        call="self, local_path=, del_local_after_load=",
    ),
    Use(
        adapter="monitoring/health_actions",
        symbol="verl.trainer.ppo.v1.trainer_base:PPOTrainer",
        has="checkpoint_manager, actor_rollout_wg, use_critic, critic_wg, replay_buffer, global_steps, logger, config",
    ),
    Use(adapter="batches/batch_columns", symbol="verl.workers.utils.padding:response_from_nested"),
    Use(adapter="patching", symbol="verl:"),
    Use(adapter="patching", symbol="verl:__version__"),
    Use(adapter="plugin_probe", symbol="verl:"),
    Use(adapter="plugin_probe", symbol="verl:__version__"),
    Use(adapter="guard", symbol="verl.utils.device:"),
    Use(adapter="guard", symbol="verl.utils.device:auto_set_device", call="config"),
    *(
        Use(
            adapter="rollout/agent_loop",
            symbol="verl.experimental.agent_loop.agent_loop:AgentLoopBase",
            overrides={
                "__init__": "trainer_config, server_manager, tokenizer, processor, dataset_cls, data_config, "
                f"{model_type}**kwargs",
                "run": "sampling_params, **kwargs",
            },
            has="config, rollout_config, processor, continuous_token_builder, tokenizer, server_manager",
            versions=versions,
        )
        for versions, model_type in (("<0.9.1", ""), (">=0.9.1", "hf_model_type, "))
    ),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.experimental.agent_loop.agent_loop:AgentLoopMetrics",
        call="generate_sequences=, tool_calls=",
    ),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.experimental.agent_loop.agent_loop:AgentLoopOutput",
        call="prompt_ids=, response_ids=, response_mask=, response_logprobs=, reward_score=, num_turns=, metrics=, "
        "extra_fields=",
    ),
    Use(
        adapter="rollout/episode_rows",
        symbol="verl.experimental.agent_loop.agent_loop:AgentLoopOutput",
        overrides={"as_dict": ""},
        has="response_mask, reward_score",
    ),
    Use(adapter="rollout/agent_loop", symbol="verl.experimental.agent_loop.agent_loop:register", call="agent_name"),
    Use(adapter="rollout/agent_loop", symbol="verl.experimental.agent_loop.tool_parser:"),
    Use(adapter="rollout/agent_loop", symbol="verl.experimental.agent_loop.tool_parser:logger.setLevel", call="level"),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.experimental.agent_loop.tool_parser:ToolParser.get_tool_parser",
        call="name, tokenizer",
    ),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.workers.config:RolloutConfig",
        has="response_length, prompt_length, multi_turn, custom",
    ),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.workers.rollout.llm_server:LLMServerClient.generate",
        call="self, request_id=, prompt_ids=, sampling_params=",
    ),
    Use(
        adapter="rollout/agent_loop",
        symbol="verl.workers.rollout.replica:TokenOutput",
        has="token_ids, log_probs, stop_reason, extra_fields",
    ),
    Use(adapter="rollout/model_codec", symbol="verl.experimental.agent_loop.tool_parser:"),
    Use(adapter="rollout/model_codec", symbol="verl.experimental.agent_loop.tool_parser:logger.setLevel", call="level"),
    Use(
        adapter="rollout/model_codec",
        symbol="verl.experimental.agent_loop.tool_parser:ToolParser.get_tool_parser",
        call="name, tokenizer",
    ),
    Use(adapter="rollout/model_codec", symbol="verl.experimental.agent_loop.tool_parser:ToolParser._registry"),
    Use(adapter="rollout/model_codec", symbol="verl.utils.tokenizer:hf_tokenizer", call="name_or_path"),
    *(
        Use(
            adapter="rollout/token_builder",
            symbol=f"{_WIRING}:create_continuous_token_builder",
            call=f"tokenizer, {family}, chat_template_kwargs=",
            versions=versions,
        )
        for versions, family in (("<0.9.1", "model_family=, model_path="), (">=0.9.1", "hf_model_type="))
    ),
    Use(
        adapter="rollout/token_builder",
        symbol="verl.experimental.agent_loop.agent_loop:AgentLoopBase",
        has="continuous_token_builder, config, tokenizer, apply_chat_template_kwargs",
    ),
    Use(
        adapter="rollout/token_builder",
        symbol="verl.utils.tokenizer.continuous_token:ContinuousTokenBuilder",
    ),
    Use(
        adapter="server/checkpoint_engine",
        symbol="verl.checkpoint_engine.base:CheckpointEngine",
        overrides=_CHECKPOINT_OVERRIDES,
    ),
    Use(adapter="server/checkpoint_engine", symbol="verl.checkpoint_engine.base:CheckpointEngineRegistry"),
    Use(
        adapter="server/checkpoint_engine",
        symbol="verl.checkpoint_engine.base:CheckpointEngineRegistry.register",
        call="backend",
    ),
    Use(
        adapter="reward/rubric_manager",
        symbol="verl.experimental.reward_loop.reward_manager.base:RewardManagerBase",
        overrides={"__init__": "config, tokenizer, compute_score", "run_single": "data"},
        has="loop, tokenizer",
    ),
    Use(adapter="reward/rubric_manager", symbol="verl.experimental.reward_loop.reward_manager:register", call="name"),
    Use(adapter="reward/group_rewards", symbol="verl.trainer.ppo.v1.replay_buffer:"),
    Use(
        adapter="reward/group_rewards",
        symbol="verl.utils.tensordict_utils:list_of_dict_to_tensordict",
        call="list_of_dicts",
    ),
    Use(adapter="replay_buffer/episode_buffer", symbol="verl.trainer.ppo.v1.replay_buffer:"),
    Use(
        adapter="replay_buffer/episode_buffer",
        symbol="verl.trainer.ppo.v1.replay_buffer:ReplayBuffer",
        has="sampler_kwargs, poll_interval",
    ),
    Use(
        adapter="server/replica",
        symbol="verl.plugin.platform:get_platform",
        call="",
    ),
    Use(
        adapter="server/replica",
        symbol="verl.plugin.platform:PlatformBase",
        has="device_name, ray_noset_envvars, rollout_env_vars, visible_devices_envvar",
    ),
    Use(adapter="server/replica", symbol="verl.utils.device:get_visible_devices_keyword", call=""),
    Use(
        adapter="server/replica",
        symbol="verl.workers.rollout.base:BaseRollout",
        overrides={
            "__init__": "config, model_config, device_mesh, *args, **kwargs",
            "resume": "tags",
            "release": "",
            "update_weights": "weights, wire_format, **kwargs",
        },
        has="config",
    ),
    Use(
        adapter="server/replica",
        symbol="verl.workers.rollout.replica:RolloutReplica",
        overrides={"launch_servers": ""},
        has="is_reward_model, is_teacher_model, workers, gpus_per_node, gpus_per_replica_node, replica_rank, "
        "max_concurrency, config, model_config, servers, _server_handle, _server_address",
    ),
    Use(
        adapter="server/replica",
        symbol="verl.workers.config:RolloutConfig",
        has="tensor_model_parallel_size, data_parallel_size, pipeline_model_parallel_size, checkpoint_engine",
    ),
    Use(
        adapter="server/replica",
        symbol="verl.workers.config.rollout:CheckpointEngineConfig",
        has="update_weights_bucket_megabytes",
    ),
    Use(adapter="server/register", symbol="verl.workers.rollout.base:_ROLLOUT_REGISTRY"),
    Use(
        adapter="server/register",
        symbol="verl.workers.rollout.replica:RolloutReplicaRegistry.register",
        call="name, loader",
    ),
    Use(
        adapter="server/rollout_server",
        symbol="verl.utils.config:omega_conf_to_dataclass",
        call="config, dataclass_type=",
    ),
    Use(adapter="server/rollout_server", symbol="verl.utils.device:get_device_name", call=""),
    Use(adapter="server/rollout_server", symbol="verl.workers.config:HFModelConfig", has="local_path"),
    Use(
        adapter="server/rollout_server",
        symbol="verl.workers.rollout.replica:TokenOutput",
        call="token_ids=, log_probs=, stop_reason=, num_preempted=, extra_fields=",
    ),
    Use(
        adapter="server/rollout_server",
        symbol="verl.workers.config:RolloutConfig",
        has="engine_kwargs, dtype, max_num_seqs, seed, prompt_length, response_length, ignore_eos",
    ),
    Use(
        adapter="trainer/shuffled_rewards",
        symbol="verl.trainer.ppo.core_algos:compute_grpo_outcome_advantage",
        call="token_level_rewards=, response_mask=, index=, config=",
    ),
    Use(adapter="trainer/whole_groups", symbol="verl.utils.seqlen_balancing:calculate_workload", call="seqlen_list"),
    Use(
        adapter="trainer/whole_groups",
        symbol="verl.utils.seqlen_balancing:get_seqlen_balanced_partitions",
        call="seqlen_list, k_partitions, equal_size",
    ),
    Use(adapter="trainer/shuffled_rewards", symbol="verl.trainer.ppo.core_algos:register_adv_est", call="name_or_enum"),
    Use(adapter="trainer/advantages", symbol="verl.trainer.ppo.core_algos:register_adv_est", call="name_or_enum"),
    Use(adapter="trainer/advantages", symbol=f"{_TRAINER_BASE}:"),
    Use(adapter="trainer/prompt_order", symbol=f"{_TRAINER_BASE}:"),
    Use(
        adapter="trainer/prompt_order",
        symbol=f"{_TRAINER_BASE}:PPOTrainer",
        has="config, global_steps, replay_buffer, train_dataloader, train_dataloader_it, train_dataset",
    ),
    *(
        Use(
            adapter="trainer/prompt_order",
            symbol=f"verl.trainer.ppo.v1.replay_buffer:{name}",
            overrides={"sample": "global_steps, partition_id, batch_size", "_clear_groups": "partition_id, uids"},
            has="partitions",
        )
        for name in ("ReplayBuffer", "ReplayBufferAsync")
    ),
    Use(
        adapter="replay_buffer/gated_buffer",
        symbol="verl.trainer.ppo.v1.replay_buffer:ReplayBuffer",
        overrides=_BUFFER_OVERRIDES,
        has=_BUFFER_HAS,
    ),
    *(
        Use(
            adapter="replay_buffer/gated_buffer",
            symbol="verl.trainer.ppo.v1.replay_buffer:ReplayBufferAsync",
            overrides=_BUFFER_OVERRIDES | waits,
            has=_BUFFER_HAS,
            versions=versions,
        )
        for versions, waits in (
            ("<0.9.1", {}),
            (">=0.9.1", {"wait_for_sampleable": "global_steps, partition_id, target_count"}),
        )
    ),
    Use(
        adapter="replay_buffer/gated_buffer",
        symbol=f"{_TRAINER_BASE}:PPOTrainer",
        has="config, global_steps, replay_buffer",
    ),
    Use(
        adapter="replay_buffer/group_replay",
        symbol="verl.utils.tensordict_utils:list_of_dict_to_tensordict",
        call="list_of_dicts",
    ),
    Use(adapter="engine/learning_rate", symbol="verl.utils.tensordict_utils:"),
    Use(
        adapter="engine/learning_rate",
        symbol="verl.utils.tensordict_utils:get_non_tensor_data",
        call="data=, key=, default=",
    ),
    Use(adapter="engine/learning_rate", symbol=f"{_TRANSFORMER_IMPL}:FSDPEngine", has="optimizer"),
    Use(adapter="engine/loss_config", symbol="verl.workers.config.actor:"),
    Use(adapter="engine/loss_config", symbol="verl.workers.config.actor:PolicyLossConfig", has="loss_mode"),
    Use(
        adapter="engine/loss_functions",
        symbol="verl.trainer.ppo.core_algos:agg_loss",
        call="loss_mat=, loss_mask=, loss_agg_mode=, dp_size=, batch_num_tokens=, global_batch_size=, "
        "loss_scale_factor=",
    ),
    Use(adapter="engine/loss_functions", symbol="verl.trainer.ppo.core_algos:"),
    Use(adapter="engine/loss_functions", symbol="verl.trainer.ppo.core_algos:register_policy_loss", call="name"),
    Use(adapter="engine/loss_functions", symbol="verl.workers.utils.losses:"),
    Use(adapter="engine/loss_functions", symbol="verl.workers.utils.padding:no_padding_2_padding", call="tensor, data"),
    Use(
        adapter="engine/loss_functions",
        symbol="verl.workers.config.actor:ActorConfig",
        has="clip_ratio, clip_ratio_low, clip_ratio_high, clip_ratio_c, policy_loss, global_batch_info",
    ),
    Use(adapter="trainer/trainers", symbol=f"{_TRAINER_BASE}:register_trainer", call="name"),
    *(
        use
        for mode, name in {"sync": "Sync", "colocate_async": "ColocateAsync", "separate_async": "SeparateAsync"}.items()
        for use in (
            Use(adapter="trainer/trainers", symbol=f"verl.trainer.ppo.v1.trainer_{mode}:"),
            Use(
                adapter="trainer/trainers",
                symbol=f"verl.trainer.ppo.v1.trainer_{mode}:PPOTrainer{name}",
                overrides=_TRAINER_OVERRIDES,
                has="config, actor_rollout_wg, ref_policy_wg, tokenizer",
            ),
        )
    ),
    Use(
        adapter="trainer/trainers",
        symbol="verl.workers.utils.padding:response_from_nested",
        call="tensor, response_mask",
    ),
    Use(adapter="engine/mean_log_prob", symbol="verl.utils.tensordict_utils:"),
    Use(
        adapter="engine/mean_log_prob",
        symbol="verl.utils.tensordict_utils:get_non_tensor_data",
        call="data=, key=, default=",
    ),
    Use(
        adapter="engine/mean_log_prob",
        symbol=f"{_TRANSFORMER_IMPL}:FSDPEngineWithLMHead._gather_and_unpad_packed",
        call="self, tensor, pad_size",
    ),
    Use(adapter="server/object_store", symbol="verl.workers.rollout.utils:ensure_async_iterator", call="iterable"),
    Use(adapter="features", symbol="verl.workers.config.critic:"),
    Use(adapter="engine/critic_config", symbol="verl.workers.config.critic:"),
    Use(adapter="engine/categorical_critic", symbol="verl.utils.metric:AggregationType.SUM"),
    Use(adapter="engine/categorical_critic", symbol="verl.utils.metric:Metric", call="value=, aggregation="),
    Use(
        adapter="engine/categorical_critic",
        symbol="verl.trainer.ppo.core_algos:agg_loss",
        call="loss_mat=, loss_mask=, loss_agg_mode=, dp_size=, batch_num_tokens=, global_batch_size=",
    ),
    Use(adapter="engine/categorical_critic", symbol="verl.utils.tensordict_utils:"),
    Use(
        adapter="engine/categorical_critic",
        symbol="verl.utils.tensordict_utils:get_non_tensor_data",
        call="data=, key=, default=",
    ),
    Use(
        adapter="engine/categorical_critic",
        symbol="verl.workers.utils.padding:no_padding_2_padding",
        call="tensor, data",
    ),
    Use(adapter="engine/categorical_critic", symbol="verl.utils.model:"),
    Use(adapter="engine/weight_copy", symbol="verl.utils.device:get_torch_device", call=""),
    *(
        Use(
            adapter=adapter,
            symbol=f"{_TRANSFORMER_IMPL}:{engine}",
            has="engine_config, checkpoint_manager, module, optimizer",
        )
        for adapter, engine in (
            ("engine/target_critic", "FSDPEngineWithValueHead"),
            ("engine/ema_teacher", "FSDPEngineWithLMHead"),
        )
    ),
    Use(
        adapter="engine/ema_teacher",
        symbol=f"{_TRANSFORMER_IMPL}:FSDPEngineWithLMHead",
        has="is_param_offload_enabled",
    ),
    Use(adapter="engine/ema_teacher", symbol="verl.utils.tensordict_utils:"),
    Use(
        adapter="engine/ema_teacher",
        symbol="verl.utils.tensordict_utils:get_non_tensor_data",
        call="data=, key=, default=",
    ),
    Use(
        adapter="engine/reference_model",
        symbol="verl.workers.engine_workers:ActorRolloutRefWorker",
        has="ref_worker_cls",
    ),
    Use(adapter="engine/reference_model", symbol="verl.utils.config:omega_conf_to_dataclass", call="config"),
    Use(adapter="engine/reference_model", symbol="verl.workers.config:MtpConfig", call="enable="),
    Use(adapter="engine/reference_model", symbol="verl.utils.model:get_hf_auto_model_class", call="hf_config"),
    Use(
        adapter="engine/reference_model", symbol="verl.single_controller.base.decorator:register", call="dispatch_mode="
    ),
    Use(adapter="engine/reference_model", symbol="verl.single_controller.base.decorator:Dispatch.ONE_TO_ALL"),
    Use(
        adapter="offline/outcome_trainer", symbol="verl.trainer.sft_trainer:SFTTrainer", overrides={"_build_config": ""}
    ),
    Use(
        adapter="offline/pair_trainer",
        symbol="verl.trainer.sft_trainer:SFTTrainer",
        overrides=dict.fromkeys(("_build_dataset", "_build_engine", "_build_dataloader", "_init_engine"), ""),
        has="config, model_config, engine, training_client, train_dataloader, val_dataloader, collate_fn, "
        "train_batch_size_per_dp",
    ),
    Use(
        adapter="offline/pear_trainer",
        symbol="verl.trainer.sft_trainer:SFTTrainer",
        overrides=dict.fromkeys(("_build_dataset", "_build_engine"), ""),
        has="config, model_config, training_client",
    ),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.device:auto_set_device", call="config"),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.distributed:initialize_global_process_group", call=""),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.distributed:destroy_global_process_group", call=""),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.tensordict_utils:"),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.tensordict_utils:assign_non_tensor", call="tensor_dict"),
    Use(adapter="offline/pair_trainer", symbol="verl.utils.tensordict_utils:get", call="tensordict, key"),
    Use(
        adapter="offline/pair_trainer",
        symbol="verl.utils.tensordict_utils:get_tensordict",
        call="tensor_dict, non_tensor_dict",
    ),
    Use(adapter="cpu/distributed", symbol="verl.utils.distributed:"),
    Use(
        adapter="cpu/distributed",
        symbol="verl.utils.distributed:initialize_global_process_group_ray",
        call="timeout_second=, backend=",
    ),
    Use(
        adapter="cpu/distributed",
        symbol="verl.utils.distributed:initialize_global_process_group",
        call="timeout_second",
    ),
    Use(adapter="cpu/cpu_log_probs", symbol="verl.utils.torch_functional:"),
    Use(
        adapter="cpu/cpu_engine",
        symbol="verl.utils.fsdp_utils:merged_lora_context",
        call="actor, backup_adapters=",
    ),
    Use(adapter="cpu/cpu_engine", symbol="verl.utils.fsdp_utils:normalize_peft_param_name", call="params"),
    Use(adapter="cpu/cpu_engine", symbol="verl.utils.model:convert_weight_keys", call="state_dict, model"),
    Use(
        adapter="cpu/cpu_engine",
        symbol="verl.workers.engine:EngineRegistry.register",
        call="model_type, backend=, device=",
    ),
    Use(
        adapter="cpu/cpu_engine",
        symbol=f"{_TRANSFORMER_IMPL}:FSDPEngine",
        overrides=_ENGINE_OVERRIDES,
        has="engine_config, module, _is_offload_param, _is_offload_optimizer",
    ),
    Use(
        adapter="cpu/cpu_engine",
        symbol=f"{_TRANSFORMER_IMPL}:FSDPEngineWithLMHead",
        overrides={"forward_step": "micro_batch, loss_function, forward_only"},
        has="get_data_parallel_size, get_data_parallel_group",
    ),
    Use(adapter="cpu/cpu_engine", symbol="verl.utils.tensordict_utils:"),
    Use(
        adapter="cpu/cpu_engine",
        symbol="verl.utils.tensordict_utils:get_non_tensor_data",
        call="data=, key=, default=",
    ),
    Use(
        adapter="cpu/cpu_engine",
        symbol="verl.utils.tensordict_utils:index_select_tensor_dict",
        call="batch, indices",
    ),
    Use(adapter="cpu/cpu_engine", symbol=f"{_TRANSFORMER_IMPL}:FSDPEngineWithValueHead"),
    Use(adapter="cpu/platform", symbol="verl.plugin.platform:PlatformBase", overrides=_PLATFORM),
    Use(adapter="cpu/platform", symbol="verl.plugin.platform:PlatformRegistry.register", call="platform="),
    Use(adapter="cpu/value_head", symbol="verl.utils.model:"),
)

PATCHES = tuple(
    (adapter, patch) for adapter, tree in sources() for patch in declared_patches(tree) if is_meant(patch.versions)
)
"""Patches that the adapters declare by `wrap`, `replace` and `add`, in the order of the files."""
USES = tuple(use for use in _WRITTEN if is_meant(use.versions)) + tuple(
    Use(adapter=adapter, symbol=patch.symbol, replaced=patch.parameters)
    for adapter, patch in PATCHES
    if patch.kind != "add"
)


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.adapter}-{use.symbol}")
def test_verl_has_what_an_adapter_uses(use: Use) -> None:
    faults = list(_faults(use))
    assert not faults, _report(use, faults)


@pytest.mark.parametrize(
    ("use", "fault"),
    [
        (Use(adapter="server/replica", symbol="verl.utils.device:gone"), "has no gone"),
        (Use(adapter="server/replica", symbol="verl.utils.gone:"), "cannot be imported"),
        (Use(adapter="guard", symbol="verl.utils.device:auto_set_device", call="config, gone="), "gone"),
        (Use(adapter="guard", symbol="verl.utils.device:auto_set_device", call="settings"), "settings"),
        (Use(adapter="guard", symbol="verl.utils.device:auto_set_device", replaced=""), "takes (config)"),
        (Use(adapter="guard", symbol="verl.utils.device:auto_set_device", replaced="*, gone, **kw"), "takes (config)"),
        (Use(adapter="guard", symbol="verl.utils.device:auto_set_device", replaced="setting, *args"), "takes (config)"),
        (Use(adapter="server/replica", symbol="verl.workers.rollout.base:BaseRollout", has="gone"), "sets no gone"),
        (
            Use(
                adapter="server/replica", symbol="verl.workers.rollout.base:BaseRollout", overrides={"resume": "label"}
            ),
            "resume takes (tags)",
        ),
        (
            Use(adapter="server/replica", symbol="verl.workers.rollout.base:BaseRollout", overrides={"resume": "tags"}),
            "wants update_weights",
        ),
    ],
)
def test_a_broken_contract_names_the_symbol_the_version_and_the_adapter(use: Use, fault: str) -> None:
    report = _report(use, list(_faults(use)))
    assert fault in report
    for part in (use.symbol.strip(":"), f"verl {verl.__version__}", f"adapters/{use.adapter}.py"):
        assert part in report


def test_the_table_holds_every_use_of_verl() -> None:
    known = {(use.adapter, use.symbol) for use in USES}
    missing = [
        f"{adapter}: {symbol}" for adapter, tree in sources() for symbol in _used_symbols(tree) - _of(known, adapter)
    ]
    assert not missing, f"the table USES lacks {sorted(missing)}"


def test_the_table_holds_every_override_and_every_inherited_attribute() -> None:
    missing = []
    for adapter, tree in sources():
        known = {use.symbol: use for use in USES if use.adapter == adapter}
        for symbol, overridden, read in _subclasses(tree):
            base = known.get(symbol, Use(adapter=adapter, symbol=symbol))
            missing += [f"{adapter}: {symbol}.{name} (overrides)" for name in overridden - set(base.overrides)]
            missing += [f"{adapter}: {symbol}.{name} (has)" for name in read - set(_split(base.has))]
    assert not missing, f"the table USES lacks {sorted(missing)}"


def test_the_walk_over_the_adapters_sees_every_way_to_name_verl() -> None:
    tree = ast.parse(
        """
import verl.utils.model
import importlib
from verl.utils import device
from verl.workers.rollout.base import BaseRollout as Base
from verl_agentic import errors

importlib.import_module("verl.utils.config")
hooks.when_imported("verl.utils.fs", print)
Adapter(module="x", needs="verl.utils.memory_utils")
device.auto_set_device({})

class Mine(Base):
    field: int = 1

    def resume(self, tags):
        self.own = self.device_mesh
        return self.own, self.field
"""
    )
    assert _used_symbols(tree) == {
        "verl.utils.model:",
        "verl.utils.device:",
        "verl.utils.device:auto_set_device",
        "verl.workers.rollout.base:BaseRollout",
        "verl.utils.config:",
        "verl.utils.fs:",
        "verl.utils.memory_utils:",
    }
    assert list(_subclasses(tree)) == [("verl.workers.rollout.base:BaseRollout", {"resume"}, {"device_mesh"})]


def test_no_adapter_changes_verl_but_by_patching() -> None:
    found = [f"{adapter}: {assigned}" for adapter, tree in sources() for assigned in assigned_attributes(tree)]
    assert not found, f"use wrap, replace or add of adapters/patching.py instead of {found}"


def test_the_walk_over_the_adapters_sees_every_way_to_patch_verl() -> None:
    tree = ast.parse(
        """
from dataclasses import replace as changed
from verl.utils import device
from verl.workers.rollout.base import BaseRollout
from verl_agentic.adapters.patching import add, replace, wrap

@wrap(BaseRollout, "resume", "release", versions="<2", lost="a")
def _resume(resume, /, self, tags=1, *, now, **kwargs):
    return changed(self, tags=tags)

def _set_device(set_device, config):
    pass

wrap(device, "auto_set_device")(_set_device)
replace(device, "is_npu_available", False)
add(device.Fake, "ours", _set_device)
"""
    )
    base = "verl.workers.rollout.base:BaseRollout"
    found = sorted((patch.kind, patch.symbol, patch.parameters, patch.versions) for patch in declared_patches(tree))
    assert found == [
        ("add", "verl.utils.device:Fake.ours", "set_device, config", ""),
        ("replace", "verl.utils.device:is_npu_available", None, ""),
        ("wrap", "verl.utils.device:auto_set_device", "config", ""),
        ("wrap", f"{base}.release", "self, tags, *, now, **kwargs", "<2"),
        ("wrap", f"{base}.resume", "self, tags, *, now, **kwargs", "<2"),
    ]
    assert not list(assigned_attributes(tree))
    tree = ast.parse(
        """
from verl.utils import device
from verl.workers.rollout.base import BaseRollout

device.a = 1
base = cast("Any", BaseRollout)
base.b = base.c = 2
for owner, name in ((device, "d"), (BaseRollout, "e")):
    setattr(owner, name, 3)
del device.f
device.Fake.g += 1
made = BaseRollout()
made.h = 4
"""
    )
    assert sorted(assigned_attributes(tree)) == [
        "base.b",
        "base.c",
        "device.Fake.g",
        "device.a",
        "device.f",
        "setattr(owner, name, 3)",
    ]


@pytest.fixture(scope="module")
def patched() -> set[tuple[str, str]]:
    """Returns adapter and symbol of every patch of verl in this process, once all adapters are loaded."""
    for adapter in ADAPTERS:
        importlib.import_module(adapter.needs)
    assert not state().failed
    return {(patch.adapter.replace(".", "/"), patch.symbol) for patch in patches() if is_verl(patch.symbol)}


def test_the_table_holds_every_patch(patched: set[tuple[str, str]]) -> None:
    known = {(adapter, patch.symbol) for adapter, patch in PATCHES}
    assert patched, "no adapter patches verl"
    assert not patched - known, f"declared_patches misses {sorted(patched - known)}"
    expected = {adapter.module.replace(".", "/") for adapter in ADAPTERS if not adapter.module.startswith("cpu.")}
    assert {(adapter, symbol) for adapter, symbol in known if adapter in expected} <= patched


@pytest.mark.parametrize("adapter", sorted({adapter for adapter, _ in PATCHES}))
def test_a_file_that_patches_verl_begins_with_what_it_patches(adapter: str) -> None:
    docstring = str(ast.get_docstring(dict(sources())[adapter]))
    assert docstring.startswith("Patches verl:")
    for name in {patch.symbol.replace(":", ".").rsplit(".", 1)[1] for known, patch in PATCHES if known == adapter}:
        assert re.search(rf"`[\w.]*\b{name}`", docstring), f"{adapter} does not name {name}"


def test_our_server_answers_every_call_that_verl_makes_to_a_server() -> None:
    from verl_agentic.adapters.server.rollout_server import RolloutServer

    calls = set()
    for module in ("replica", "llm_server"):
        source = Path(str(_module(f"verl.workers.rollout.{module}").__file__)).read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and (found := re.fullmatch(r"server\.(\w+)\.remote", ast.unparse(node.func))):
                calls.add((found[1], tuple(keyword.arg for keyword in node.keywords if keyword.arg)))
    assert {name for name, _ in calls} >= {"generate", "sleep", "wake_up", "abort_all_requests"}
    for name, keywords in calls:
        method = getattr(RolloutServer, name, None)
        assert method, f"verl {verl.__version__} calls {name} of a rollout server; RolloutServer has none"
        accepted = inspect.signature(method).parameters
        taken = {*accepted} if not _has_kwargs(method) else {*accepted, *keywords}
        assert taken >= set(keywords), f"verl {verl.__version__} gives {name} of a rollout server {keywords}"


def test_verls_token_builder_has_the_methods_that_join_turns() -> None:
    builder = _module("verl_agentic.adapters.rollout.token_builder").ContinuousTokenBuilder
    for name in ("build_initial_tokens", "merge_context_tokens", "render_delta_token_id"):
        given = _split(_parameters(getattr(ContextBuilder, name)))
        faults = list(_call_faults(getattr(builder, name), [f"{n}=" if n == "tools" else n for n in given]))
        assert not faults, f"{name} of the token builder of verl {verl.__version__} {faults}"


def test_verl_has_the_configuration_keys_that_the_guard_reads() -> None:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    rollout = "actor_rollout_ref.rollout"
    for key in (
        "trainer.device",
        f"{rollout}.name",
        f"{rollout}.agent.default_agent_loop",
        f"{rollout}.checkpoint_engine.backend",
        "algorithm.adv_estimator",
        "trainer.v1.sampler.sampler_kwargs",
        "reward.reward_manager.name",
    ):
        section, _, name = key.rpartition(".")
        # A set of keys, because `in` says False for a value that is still to be given.
        assert name in {*OmegaConf.select(config, section).keys()}, (
            f"verl {verl.__version__} has no {key}, which guard reads"
        )


def _report(use: Use, faults: list[str]) -> str:
    where = "plugin.py" if use.adapter == "plugin" else f"adapters/{use.adapter}.py"
    return f"{use.symbol.strip(':')} of verl {verl.__version__}, used by {where}: {'; '.join(faults)}"


def _faults(use: Use) -> Iterator[str]:
    module_name, _, name = use.symbol.partition(":")
    try:
        found: Any = _module(module_name)
    except ImportError as error:
        yield f"cannot be imported, {error}"
        return
    for part in filter(None, name.split(".")):
        if not hasattr(found, part):
            yield f"{getattr(found, '__name__', found)} has no {part}"
            return
        found = getattr(found, part)
    if use.call is not None:
        yield from _call_faults(found, _split(use.call))
    if use.replaced is not None and not _takes_its_calls(found, _split(use.replaced)):
        yield f"takes ({_parameters(found)}), ours takes ({use.replaced})"
    if use.overrides:
        yield from _override_faults(found, use.overrides)
    names = _instance_names(found) if use.has else set()
    yield from (f"sets no {name}" for name in _split(use.has) if name not in names)


def _takes_its_calls(function: Any, ours: list[str]) -> bool:
    """Tells whether a function of ours takes what verl's does: the same names, or stars for the rest."""
    positional = list(itertools.takewhile(lambda name: not name.startswith("*"), ours))
    keywords = {name for name in ours[len(positional) :] if not name.startswith("*")}
    # Ray adds it to the methods of its actors.
    theirs = [name for name in _split(_parameters(function)) if name != "_ray_trace_ctx"]
    named = [name for name in theirs if not name.startswith("*")]
    takes_rest = any(name.startswith("*") and name != "*" for name in ours)
    rest = [name for name in theirs if name not in (*positional, *keywords)]
    return named[: len(positional)] == positional and keywords <= set(named) and (takes_rest or not rest)


def _call_faults(function: Any, arguments: list[str]) -> Iterator[str]:
    positional = [name for name in arguments if not name.endswith("=")]
    signature = inspect.signature(function)
    if list(signature.parameters)[: len(positional)] != positional:
        yield f"takes {signature}, it is given {positional} in that order"
    try:
        signature.bind(*positional, **{name[:-1]: None for name in arguments if name.endswith("=")})
    except TypeError as error:
        yield f"takes {signature}, {error}"


def _override_faults(base: type, overrides: dict[str, str | None]) -> Iterator[str]:
    abstract = getattr(base, "__abstractmethods__", frozenset())
    yield from (f"wants {name}, which we do not have" for name in sorted(abstract - set(overrides)))
    for name, expected in overrides.items():
        method = inspect.getattr_static(base, name, None)
        if method is None:
            yield f"has no {name}"
        elif isinstance(method, property) != (expected is None):
            yield f"{name} is a {type(method).__name__}"
        elif expected is not None:
            parameters = _parameters(getattr(base, name)).removeprefix("self").removeprefix(", ")
            if parameters != expected:
                yield f"{name} takes ({parameters}), we override ({expected})"


def _parameters(function: Any) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    # Ours may have replaced it in this process already: inspect follows functools.wraps to the original.
    return ", ".join(
        stars.get(parameter.kind, "") + name for name, parameter in inspect.signature(function).parameters.items()
    )


def _instance_names(cls: type) -> set[str]:
    """Returns class attributes, annotated fields, and what methods assign to `self`."""
    names = set(dir(cls)) | set(getattr(cls, "model_fields", ()))
    for base in cls.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node)
        }
    return names


def _used_symbols(tree: ast.Module) -> set[str]:
    bound = bindings(tree)
    # A module that is only named counts itself; one symbol of it is counted where it is used.
    used = set(bound.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {f"{alias.name}:" for alias in node.names if is_verl(alias.name)}
        if isinstance(node, ast.Call):
            used |= {f"{name}:" for name in _named_modules(node)}
        if isinstance(node, ast.Attribute):
            used |= _attribute(node, bound)
    used |= {patch.symbol for patch in declared_patches(tree) if patch.kind != "add" and is_meant(patch.versions)}
    # `Class.method` says more than `Class`.
    return {s for s in used if s.endswith(":") or not any(o.startswith(f"{s}.") for o in used)} | _bases(tree, bound)


def _named_modules(call: ast.Call) -> list[str]:
    function = ast.unparse(call.func).rsplit(".", 1)[-1]
    given = [keyword.value for keyword in call.keywords if keyword.arg == "needs"]
    if function in ("import_module", "when_imported", "__import__"):
        given += call.args[:1]
    constants = [node.value for node in given if isinstance(node, ast.Constant)]
    return [name for name in constants if isinstance(name, str) and is_verl(name)]


def _attribute(node: ast.Attribute, bound: dict[str, str]) -> set[str]:
    root, *names = ast.unparse(node).split(".")
    symbol = bound.get(root)
    if symbol is None or not all(name.isidentifier() for name in names):
        return set()
    depth = 2 if symbol.endswith(":") else 1
    return {symbol + ("" if symbol.endswith(":") else ".") + ".".join(names[:depth])}


def _bases(tree: ast.Module, bound: dict[str, str]) -> set[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {bound[ast.unparse(base)] for node in classes for base in node.bases if ast.unparse(base) in bound}


def _subclasses(tree: ast.Module) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yields a base of verl, the methods of it that a class overrides, and the attributes that it reads of it."""
    bound = bindings(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_self(n)]
        own = {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}
        own |= {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
        methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        for base in node.bases:
            if (symbol := bound.get(ast.unparse(base))) is not None:
                module, _, name = symbol.partition(":")
                inherited = {m for m in methods if m in _defined(getattr(_module(module), name))}
                yield symbol, inherited, {n.attr for n in attributes} - own - methods


def _defined(cls: type) -> set[str]:
    return {name for base in cls.__mro__[:-1] if base.__module__.startswith("verl.") for name in vars(base)}


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _has_kwargs(function: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _of(known: set[tuple[str, str]], adapter: str) -> set[str]:
    # All modules `<part>_features` share one entry.
    return {symbol for name, symbol in known if name == ("features" if adapter.endswith("_features") else adapter)}


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
