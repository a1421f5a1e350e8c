"""The comparison with TRL and ms-swift: equal settings, and figures that do not rest on what a side says of itself."""

from __future__ import annotations

import asyncio
import copy
import importlib
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from verl_agentic.cpu.quickstart.course import load_course

_FOLDER = Path(__file__).parents[2] / "studies" / "peers"
_END, _HEADER = 1, (7, 8)


@pytest.fixture(scope="module")
def peers() -> Any:
    """Returns the names of the benchmark's modules."""
    modules = [importlib.import_module(f"_peers_{name}") for name in ("processes", "settings", "training")]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


@pytest.mark.parametrize(
    ("ids", "observed"),
    [
        ([3, 4, _END], []),
        ([3, 4], []),
        ([3, _END, 5, 6, *_HEADER, 4, _END], [2, 3, 4, 5]),
        ([3, _END, 5, *_HEADER, 4, _END, 6, 6, *_HEADER, 4], [2, 3, 4, 7, 8, 9, 10]),
        ([3, _END, 5, _END, *_HEADER, 4, _END], [2, 3, 4, 5]),  # the message of the observation has an end, too
        ([3, *_HEADER, 4, _END], []),  # the policy wrote a header itself
        ([3, _END, 5, 6], [2, 3]),
    ],
    ids=["answer", "cut", "one call", "two calls", "end inside", "header inside", "cut after the call"],
)
def test_tokens_between_the_end_of_a_turn_and_the_next_header_are_observations(
    peers: Any, ids: list[int], observed: list[int]
) -> None:
    found = peers.is_observation(ids, ends=[_END], header=_HEADER)
    assert [at for at, is_observed in enumerate(found) if is_observed] == observed


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("print(1)</python><output>1</output>\nit is 1", "<output>1</output>"),
        ("a</python><output>1</output>b</python><output>2", "<output>1</output><output>2"),  # the last one is cut
        ("it prints <output>1</output> <python>1</python>", ""),  # written by the policy
        ("without a call", ""),
    ],
)
def test_tokens_of_an_output_behind_a_call_are_observations(peers: Any, text: str, observed: str) -> None:
    ids = [ord(letter) for letter in text]
    marks = peers.is_output(ids, decode=lambda ids: "".join(map(chr, ids)))
    assert "".join(letter for letter, is_observed in zip(text, marks, strict=True) if is_observed) == observed


@pytest.fixture(scope="module")
def recipe(peers: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("recipe")
    return peers.Plan(start=folder, out=folder, seed=3, steps=5).recipe()


@pytest.mark.sample(1)
@pytest.mark.parametrize("settings", ["trl_settings", "swift_settings"])
def test_the_settings_of_the_others_are_those_of_the_recipe(peers: Any, recipe: Any, settings: str) -> None:
    config = getattr(peers, settings)(recipe, steps=5, seed=3)
    actor = recipe["actor_rollout_ref"]["actor"]
    assert config["learning_rate"] == actor["optim"]["lr"] == 4e-4
    assert (config["beta"], config["delta"]) == (actor["kl_loss_coef"], actor["clip_ratio_c"]) == (0.1, 3.0)
    # 16 prompts with 8 episodes each, in two updates.
    assert config["per_device_train_batch_size"] * config["steps_per_generation"] == 16 * 8
    assert (config["steps_per_generation"], config["max_steps"], config["num_generations"]) == (2, 10, 8)
    assert config["max_completion_length"] == load_course("quickstart").limits.max_response_tokens
    assert (config["seed"], config["bf16"], config["use_cpu"]) == (3, False, True)


def test_an_update_of_several_passes_is_the_mean_over_all_its_tokens(peers: Any, tmp_path: Path) -> None:
    recipe = peers.Plan(start=tmp_path, out=tmp_path, seed=0, steps=3, recipe_name="smollm2").recipe()
    config = peers.trl_settings(recipe, steps=3, seed=0)
    rows, optim = recipe["data"]["train_batch_size"] * 8, recipe["actor_rollout_ref"]["actor"]["optim"]
    assert (config["per_device_train_batch_size"], config["num_generations"]) == (8, 8)  # a pass has one group
    assert config["gradient_accumulation_steps"] == config["steps_per_generation"] == rows // 8 > 1
    assert (config["max_steps"], config["loss_type"], config["warmup_steps"]) == (3, "dapo", optim["lr_warmup_steps"])
    assert (config["epsilon"], config["epsilon_high"], config["beta"]) == (0.2, 0.28, 0.0)


def test_all_sides_get_the_rows_in_the_order_of_the_file_and_have_three_turns(peers: Any, recipe: Any) -> None:
    trl, swift = (settings(recipe, steps=5, seed=3) for settings in (peers.trl_settings, peers.swift_settings))
    assert recipe["data"]["shuffle"] is trl["shuffle_dataset"] is swift["train_dataloader_shuffle"] is False
    assert load_course("quickstart").limits.max_turns == trl["max_tool_calling_iterations"] + 1 == swift["max_turns"]


def test_a_recipe_that_the_others_have_no_setting_for_is_refused(peers: Any, recipe: Any) -> None:
    other = copy.deepcopy(recipe)
    other["actor_rollout_ref"]["actor"]["loss_agg_mode"] = "seq-mean-token-sum"
    with pytest.raises(ValueError, match="loss_agg_mode"):
        peers.trl_settings(other, steps=1, seed=0)


@pytest.mark.parametrize(
    ("success", "at"),
    [
        ([0.9, 0.9], None),  # too few steps for a mean
        ([0.7, 0.8, 0.95], 3),
        ([0.9, 0.7, 0.7, 0.9, 0.9], 5),
        ([0.4, 0.5, 1.0, 0.5], None),  # one lucky step does not count
    ],
)
def test_success_is_reached_when_its_mean_over_three_steps_is(peers: Any, success: list[float], at: int | None) -> None:
    assert training(peers, [step(peers, success=one) for one in success]).steps_to_success() == at


def test_a_typical_step_is_neither_the_first_nor_the_last(peers: Any) -> None:
    steps = [step(peers, seconds=seconds) for seconds in (50.0, 2.0, 2.0, 3.0, 70.0)]
    assert training(peers, steps).typical("seconds") == 2.0


async def test_a_training_works_only_in_its_turns(peers: Any, tmp_path: Path) -> None:
    turns, done = peers.Turns(tmp_path), []

    def train() -> None:
        for number in (1, 2):
            turns.wait(number)
            done.append(number)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        await until(lambda: turns.waiting == 1)
        assert done == []
        turns.grant(1)
        await until(lambda: turns.waiting == 2)
        assert done == [1]
    finally:
        turns.grant(2)
        thread.join()
    assert done == [1, 2]


async def until(condition: Any) -> None:
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError("the condition has not come true in 20 s")


def test_the_memory_of_a_process_is_what_it_holds(peers: Any) -> None:
    code = "import sys; held = bytearray(b'x' * 50_000_000); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert 5e7 <= peers.own_memory(psutil.Process(child.pid)) < 8e7
        child.kill()
    assert peers.own_memory(child) == 0


def step(peers: Any, *, seconds: float = 1.0, success: float = 0.0) -> Any:
    none = dict.fromkeys(("sampled_tokens", "observation_tokens", "observation_tokens_trained"), 0)
    return peers.Step(seconds=seconds, cpu_s=1.0, success=success, rollout_s=1.0, **none)


def training(peers: Any, steps: list[Any]) -> Any:
    start_up = peers.Turn(seconds=1.0, cpu_s=1.0)
    rows = dict.fromkeys(("sampled", "trained", "prompts"), ())
    return peers.Training(start_up=start_up, steps=steps, **rows, model=Path("model"), peak_bytes=0)
