"""Every section of ours is read by one function, which refuses a misspelt key and what is no section."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")

import verl_agentic.verl
from verl_agentic.entry_point import KEYS
from verl_agentic.verl.config_root import ROOT
from verl_agentic.verl.sections import AGENTIC, all_sections, refused_sections

LOSS = "actor_rollout_ref.actor.policy_loss"
SAMPLER = "trainer.v1.sampler"
OURS = {"trainer.v1.trainer_mode": "agentic_sync"}
EPISODES = {
    "env": "python_math",
    "env_config": {},
    "limits": {
        "max_response_tokens": 512,
        "max_context_tokens": 1024,
        "max_turns": 4,
        "max_turn_tokens": 256,
        "max_episode_tokens": 2048,
        "answer_reserve_tokens": 8,
        "final_notice": "Answer now.",
        "max_observation_tokens": 64,
        "observation_keep": "tail",
        "max_calls_per_turn": 2,
        "start_timeout_s": 9.5,
        "turn_timeout_s": 9,
        "episode_timeout_s": 99,
        "score_timeout_s": 9,
        "close_timeout_s": 9,
        "max_retries": 0,
        "retry_wait_s": 0.5,
    },
    "compaction": {
        "strategy": "summary",
        "keep_last": 1,
        "min_room_tokens": 32,
        "max_summary_tokens": 64,
        "max_rows": 3,
    },
    "exploration": {"epsilon_tool": 0.1, "partial_solution": {"start": 0.5, "end": 0.0, "steps": 10}},
    "max_turns_schedule": {"stages": [2, 4], "every": 5},
    "temperature_schedule": {"start": 1.2, "end": 0.7, "steps": 100},
    "protocol": "chat",
    "protocol_options": {
        "repair": True,
        "check_arguments": False,
        "self_written": False,
        "train_self_written": False,
        "tools_as": "vllm",
    },
    "guidance": False,
    "constraint": "!answer U search",
    "constraint_masks": True,
    "branching": {"initial": 2, "beam": 2, "probability": 0.5, "entropy_weight": 0.2, "entropy_tokens": 20},
    "max_void_share": 0.25,
    "external_sessions": 1,
    "log": {"dir": "somewhere", "file_mb": 1.5, "total_gb": 2, "console": "all"},
    "audit": "warn",
    "health": {
        "enabled": True,
        "alarms": [],
        "actions": {"gradient": "stop", "default": "log"},
        "thresholds": {"gradient": {"patience": 3}},
        "every": 2,
        "max_rollbacks": 1,
        "judge_drift": {"component": "clear", "every": 5, "tasks": None},
    },
    "waiting": {"stuck_after_s": 60, "stuck_generate_s": 90.5, "report_every_s": 5},
}
MODEL = {
    "url": "http://127.0.0.1:1/v1",
    "model": "m",
    "api_key_env": "KEY",
    "temperature": 0.5,
    "max_tokens": 99,
    "timeout_s": 9.5,
    "concurrency": 2,
    "request": {},
}
CURRICULUM = {
    "name": "learnability",
    "options": {},
    "floor": 0.1,
    "memory": 0.5,
    "prior_trials": 2,
    "outcome": "acc",
    "difficulty_key": "extra_info.level",
    "source_key": "data_source",
    "pass_rate_key": "extra_info.rate",
    "group_size": {"least": 2, "most": 6},
    "instructions": {
        "initial": ["", "Search again."],
        "temperature": 0.2,
        "memory": 0.5,
        "size": 4,
        "trial_groups": 2,
        "every": 5,
        "reflector": MODEL,
    },
    "task_set": {
        "proposals": "tasks.jsonl",
        "check": "module:function",
        "patience": 3,
        "value_bounds": [0.1, 0.9],
        "mutator": MODEL,
        "every": 5,
        "mutations": 2,
    },
}
GATES = {
    "gates": ["void_groups", {"name": "band_pass", "low": 0.1, "high": 0.9}],
    "keep_surplus": 1,
    "max_inflight_batches": 2,
    "cohort": 4,
    "max_generated_groups": 64,
    "max_drop_rate": 0.9,
    "window": 64,
    "replay": {
        "capacity": 8,
        "share": 0.25,
        "priority_share": 0.5,
        "weight": "value",
        "max_reward": 2.0,
        "max_lag": 3,
        "certainty_bounds": [0.5, 0.95],
        "seed": 1,
    },
    "poll_interval_s": 0.5,
}
RUBRIC = {
    "components": [
        {"use": "math", "weight": 1.0, "name": "answer", "kind": "outcome", "timeout_s": 5.0},
        {"use": "format", "weight": 0.1, "cap": 0.1, "only_if": {"answer": 0.5}, "data_sources": ["x"]},
    ],
    "timeout_s": 9.0,
    "mask_overlong": 16,
    "mask_stops": ["max_turns"],
    "on_error": "stop",
}
_JUDGE = {"use": "judge", "name": "clear", "cap": 0.1, "options": {"endpoint": "http://127.0.0.1:1/v1", "models": "m"}}
_JUDGED = {"reward.rubric": {"components": [{"use": "math"}, _JUDGE]}}
_KL = {"actor_rollout_ref.actor.use_kl_loss": True, "actor_rollout_ref.actor.kl_loss_coef": 0.0}
_GATED = {f"{SAMPLER}.custom_sampler.path": "pkg://verl_agentic.verl.replay_buffer.gated_buffer"}
_COSTS = {"max_mean": {"tool_calls": 0.5}, "lr": 0.2}
_SDPO = {f"{LOSS}.loss_mode": "sdpo", "actor_rollout_ref.actor.strategy": "fsdp2"}
SOUND: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    AGENTIC: [
        (EPISODES, {"actor_rollout_ref.rollout.n": 8, "actor_rollout_ref.rollout.calculate_log_probs": True, **_JUDGED})
    ],
    "data.curriculum": [(CURRICULUM, {})],
    f"{SAMPLER}.sampler_kwargs": [(GATES, _GATED), ({"poll_interval_s": 0.1}, {}), ({"gates": []}, {})],
    "algorithm.credit": [
        ({"clip": 5.0, "by_source": True, "roles": "agent", "options": {"gamma": 0.9, "lam": 0.5, "whiten": False}},
         {**OURS, "algorithm.adv_estimator": "turn_gae"}),
    ],
    "algorithm.implicit_reward": [({"model_path": "phi", "beta": 0.1, "outcome_coef": 0.5}, {**OURS, **_KL})],
    "algorithm.cost_limits": [({**_COSTS, "scales": {"tool_calls": 2.0}, "initial": 0.5, "max_multiplier": 9.0}, OURS)],
    "algorithm.length_lr": [({"reference_tokens": 512}, OURS)],
    "algorithm.linear_lr": [({"min_ratio": 0.1}, OURS)],
    "algorithm.prompt_information": [({"every": 5, "prompts": 4, "tokens": 64}, OURS)],
    "algorithm.self_teacher": [({"tau": 0.05}, {**OURS, **_SDPO})],
    f"{LOSS}.options": [({"low": 0.1, "high": 5.0}, {f"{LOSS}.loss_mode": "ratio_masked"})],
    "critic.categorical": [({"low": -0.5, "high": 1.5, "bins": 16}, {})],
    "critic.target": [({"tau": 0.1}, {**OURS, "algorithm.adv_estimator": "archer"})],
    "reward.rubric": [(RUBRIC, {"reward.reward_manager.name": "rubric"})],
    "actor_rollout_ref.rollout.engine_kwargs.agentic": [
        ({"max_cached_tokens": 1024, "prefill_tokens": 64, "prefix_reuse": False}, {})
    ],
}  # fmt: skip
CASES = [(path, value, context) for path, cases in SOUND.items() for value, context in cases]
FREE = {
    *("env_config", "thresholds", "actions", "options", "components", "gates", "required", "request"),
    *("max_mean", "scales"),
}
"""Keys whose values are no section with a fixed set of keys of its own."""


VERLS: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"strategy": "fsdp2", "use_kl_loss": False, "checkpoint": {}, "policy_loss": {"loss_mode": "vanilla"}},
        "model": {},
        "rollout": {"n": 4, "prompt_length": 512, "response_length": 512, "max_num_seqs": 64, "seed": 0},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "critic": {"enable": True, "checkpoint": {}},
    "data": {"dataloader_num_workers": 0},
    "reward": {"reward_manager": {"name": "naive"}},
    "trainer": {"v1": {"trainer_mode": "sync", "sampler": {"custom_sampler": {}, "sampler_kwargs": {}}}},
}
"""Keys of verl that readers use in addition to their section."""


def with_section(path: str, value: Any, context: Mapping[str, Any]) -> Any:
    config = copy.deepcopy(VERLS)
    for place, one in {**context, path: value}.items():
        *sections, key = place.split(".")
        section = config
        for name in sections:
            if section.get(name) is None:
                section[name] = {}
            section = section[name]
        section[key] = copy.deepcopy(one)
    return OmegaConf.create(config)


def refused(config: Any) -> list[str]:
    return [str(one) for one in refused_sections(config)]


def sections_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the places of sections with a fixed set of keys."""
    yield path
    for key, inner in value.items():
        if isinstance(inner, Mapping) and key not in FREE:
            yield from sections_in(inner, (*path, key))


def at(value: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


@pytest.mark.parametrize(("path", "value", "context"), CASES)
def test_what_the_documentation_allows_is_read(path: str, value: Any, context: Any) -> None:
    assert refused(with_section(path, value, context)) == []


def test_every_section_has_an_example_with_all_of_its_keys() -> None:
    assert all(any(path == known or path.startswith(f"{known}.") for known in SOUND) for path in all_sections())
    for path, value, context in (case for case in CASES if case[0] in SOUND and len(case[1]) > 1):
        for place in sections_in(value):
            broken = copy.deepcopy(value)
            at(broken, place)["no_such_key"] = 1
            (said, *_) = refused(with_section(path, broken, context))
            if known := re.search(r"known ones: (\[.*?\])", said):
                assert set(ast.literal_eval(known[1])) - {"required"} == set(at(value, place)), (path, place)


def misspelt(word: str, how: str) -> str:
    middle = len(word) // 2
    return {
        "double": word[:middle] + word[middle] + word[middle:],
        "drop": word[: middle - 1] + word[middle:],
        "swap": word[:-2] + word[-1] + word[-2],
        "append": f"{word}s",
    }[how]


def keys_in(value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields section and name of every key."""
    for place in sections_in(value):
        yield from ((place, key) for key in at(value, place))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("path", "value", "context"), CASES)
def test_a_misspelt_key_is_refused_in_every_section(path: str, value: Any, context: Any) -> None:
    for (place, key), how in zip(keys_in(value), itertools.cycle(("double", "drop", "swap", "append"))):
        broken, wrong = copy.deepcopy(value), misspelt(key, how)
        section = at(broken, place)
        if wrong not in section:
            section[wrong] = section.pop(key)
            said = refused(with_section(path, broken, context))
            assert said and wrong in said[0], (path, key, wrong, said)


@pytest.mark.parametrize(("path", "value", "context"), CASES)
@pytest.mark.parametrize("wrong", [3, "text", ["a"], True])
def test_a_section_that_is_none_is_refused(path: str, value: Any, context: Any, wrong: Any) -> None:
    assert refused(with_section(path, wrong, context)), path


def test_the_entry_point_knows_every_section_that_only_the_plugin_reads() -> None:
    of_verl = (f"{SAMPLER}.sampler_kwargs", "actor_rollout_ref.rollout.engine_kwargs.agentic")
    ours = {path for path in all_sections() if path not in of_verl and not path.startswith(f"{AGENTIC}.")}
    assert ours | {ROOT} == set(KEYS)


def _calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_adapters_parse_no_section_by_themselves() -> None:
    """Only the modules `<part>_features` read sections; the few others are what those modules call themselves."""
    folder = Path(verl_agentic.verl.__path__[0])
    parsers = {"read_settings", "check_keys", "check_options"}
    found = {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if any(call in parsers or call.endswith((".from_mapping", "Rubric.from_config")) for call in
               _calls(ast.parse(file.read_text(encoding="utf-8"))))
    }  # fmt: skip
    assert {file for file in found if not file.endswith("_features.py")} == {
        "config_root.py",  # the names of sections below the root
        "replay_buffer/gated_buffer.py",  # GateOptions, and the rubric
        "trainer/advantages.py",  # algorithm.credit, as verl hands the section algorithm to estimators
        "extensions/methods/trainer/implicit_rewards.py",  # check_implicit_reward
        "extensions/methods/trainer/proposing_models.py",  # models of agentic.curriculum
        "extensions/methods/trainer/self_teacher.py",  # teacher_tau
        "extensions/methods/method_sections.py",
        "extensions/offline/warm_start_trainer.py",  # SFT, too
        "extensions/offline/pair_trainer.py",  # SFT, which has a configuration of its own
        "reward/rubric_manager.py",
        "reward/group_rewards.py",
        "extensions/preflight/gold_episodes.py",  # the rubric
        "extensions/preflight/rows_as_verl.py",  # the rubric
        "extensions/server/rollout_server.py",  # SamplingParams of a request
    }
