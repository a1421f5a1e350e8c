"""Keys of verl that its V1 trainers accept and ignore; each was checked in verl 0.9.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import MISSING, PlannedRun

_MODEL, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_SHARED_PROMPTS = f"{_MODEL}.fused_kernel_options.shared_prompts"


def _is_any_run(run: PlannedRun) -> bool:
    return True


def _is_ours(run: PlannedRun) -> bool:
    return run.is_ours


def _has_custom_sampler(run: PlannedRun) -> bool:
    return bool(run.get("trainer.v1.sampler.custom_sampler.path"))


def _cannot_share_prompts(run: PlannedRun) -> bool:
    needs = {
        f"{_MODEL}.use_fused_kernels": True,
        f"{_MODEL}.fused_kernel_options.impl_backend": "sampled",
        f"{_MODEL}.override_config.attn_implementation": "sdpa",
    }
    return bool(run.get(_SHARED_PROMPTS)) and any(run.get(key) != value for key, value in needs.items())


def _is_refilled(run: PlannedRun) -> bool:
    return run.trainer_mode != "sync" or bool(run.get("algorithm.filter_groups.enable"))


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A key that is dead, or dead under a condition."""

    path: str
    """Path of a key, or of a section with all its keys."""
    why: str
    instead: str
    when: Callable[[PlannedRun], bool] = _is_any_run
    harmless: tuple[Any, ...] = ()
    """Values that equal the fixed behaviour."""
    spoils: bool = True
    """Whether the results differ from the value; otherwise only the cost does."""


_LEGACY = "V1 reads only the section reward; verl's migration of the old one runs in fully_async alone"
_TURNS = "env_agent has its own budgets and ignores multi_turn"
KNOBS = (
    Knob(path="custom_reward_function", why=_LEGACY, instead="set reward.custom_reward_function"),
    Knob(path="reward_model", why=_LEGACY, instead="set reward.reward_manager and reward.reward_model"),
    Knob(path="sandbox_fusion", why=_LEGACY, instead="set reward.sandbox_fusion"),
    Knob(
        path="algorithm.filter_groups.max_num_gen_batches",
        why="the V1 replay buffer ignores it and only warns",
        instead="use algorithm.filter_groups.max_inflight_gen_batches, or our gates with max_generated_groups",
    ),
    Knob(
        path="algorithm.filter_groups.enable",
        why="a custom sampler filters by itself: verl does not pass it this section",
        instead="name the gates in agentic.sampling.gates, and switch it off",
        when=_has_custom_sampler,
    ),
    Knob(path="algorithm.use_pf_ppo", why="only the V0 trainer reweights", instead="unset it"),
    Knob(path="algorithm.pf_ppo", why="only the V0 trainer reweights", instead="unset it"),
    Knob(
        path=f"{_ROLLOUT}.multi_turn.enable",
        why="the agent loop of a row decides whether there are turns",
        instead=f"set {_ROLLOUT}.agent.default_agent_loop, or agent_name in the rows",
        harmless=(True,),
    ),
    *(
        Knob(path=f"{_ROLLOUT}.multi_turn.{name}", why="it was of the old sglang rollout", instead="unset it")
        for name in ("use_inference_chat_template", "tokenization_sanity_check_mode", "num_repeat_rollouts")
    ),
    Knob(
        path=f"{_ROLLOUT}.multi_turn.max_assistant_turns",
        why=_TURNS,
        instead="set agentic.limits.max_turns",
        when=_is_ours,
    ),
    Knob(
        path=f"{_ROLLOUT}.multi_turn.max_user_turns", why=_TURNS, instead="set agentic.limits.max_turns", when=_is_ours
    ),
    Knob(path=f"{_ROLLOUT}.over_sample_rate", why="it was of the old sglang rollout", instead="unset it"),
    Knob(path=f"{_ROLLOUT}.do_sample", why="only temperature has an effect", instead="set temperature"),
    Knob(
        path=f"{_ROLLOUT}.val_kwargs.do_sample",
        why="only val_kwargs.temperature has an effect",
        instead=f"set {_ROLLOUT}.val_kwargs.temperature",
        harmless=(True,),
    ),
    Knob(path=f"{_ROLLOUT}.repetition_penalty", why="V1 samples with 1.0", instead="unset it"),
    Knob(
        path=f"{_ROLLOUT}.trace.backend",
        why="V1 traces no sample",
        instead="set agentic.log.dir and use verl-agentic view",
    ),
    Knob(path=f"{_ROLLOUT}.agent.custom_async_server", why="nothing loads it", instead=f"set {_ROLLOUT}.name"),
    Knob(
        path=f"{_ROLLOUT}.checkpoint_manager_class",
        spoils=False,
        why="only the old trainers load it",
        instead="unset it",
    ),
    Knob(path="trainer.balance_batch", spoils=False, why="V1 always balances", instead="unset it"),
    Knob(path="trainer.esi_redundant_time", why="V1 saves by save_freq alone", instead="set trainer.save_freq"),
    Knob(
        path="trainer.ray_wait_register_center_timeout", spoils=False, why="V1 does not hand it on", instead="unset it"
    ),
    Knob(
        path="actor_rollout_ref.actor.calculate_sum_pi_squared",
        spoils=False,
        why="V1 does not hand it on",
        instead="unset it",
    ),
    Knob(
        path="actor_rollout_ref.actor.use_prefix_grouper",
        spoils=False,
        why="V1 does not hand it on",
        instead="unset it",
    ),
    Knob(
        path=_SHARED_PROMPTS,
        spoils=False,
        why="rows share a prompt only in the pass for trained tokens, with torch's attention",
        instead=f"set {_MODEL}.use_fused_kernels=true, fused_kernel_options.impl_backend=sampled and "
        "override_config.attn_implementation=sdpa",
        when=_cannot_share_prompts,
    ),
    Knob(
        path="data.reward_fn_key",
        why="the reward loop reads the column data_source",
        instead="name the column data_source",
    ),
    *(
        Knob(
            path=f"data.{name}",
            why="V1 keeps the messages and no other form of the prompt",
            instead="unset it",
            spoils=False,
        )
        for name in ("return_raw_chat", "return_raw_input_ids", "return_full_prompt")
    ),
    Knob(
        path="data.gen_batch_size",
        why="async trainers and filters ask for prompts one by one: verl sets it to 1",
        spoils=False,
        instead="unset it",
        when=_is_refilled,
        harmless=(1,),
    ),
    Knob(path="data.sampler", why="verl 0.9 has no samplers of that kind any more", instead="set agentic.curriculum"),
)


def dead_knobs(run: PlannedRun) -> list[Finding]:
    """Returns the keys that were set and have no effect."""
    if run.get("trainer.use_v1") is False:
        return [warn("trainer.use_v1=false: verl's deprecated trainer, which our adapters do not support", "unset it")]
    findings = [_judge_knob(knob, run) for knob in KNOBS if knob.when(run) and is_set(knob.path, run)]
    return findings or [ok("no key is set that V1 ignores")]


def is_set(path: str, run: PlannedRun) -> bool:
    """Returns whether a key, or a key of a section, differs from verl's default."""
    return _is_changed(value_at(run.config, path), value_at(run.defaults, path))


def _is_changed(value: Any, default: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_changed(inner, (default or {}).get(key)) for key, inner in value.items() if key != "_target_")
    return value not in (None, MISSING) and value != default


def value_at(tree: Any, path: str) -> Any:
    """Returns the value at a dotted path; None if there is none."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _judge_knob(knob: Knob, run: PlannedRun) -> Finding:
    value = value_at(run.config, knob.path)
    message = (
        f"{knob.path}={value} has no effect: {knob.why}"
        if not isinstance(value, dict)
        else (f"the section {knob.path} has no effect: {knob.why}")
    )
    return fail(message, knob.instead) if knob.spoils and value not in knob.harmless else warn(message, knob.instead)
