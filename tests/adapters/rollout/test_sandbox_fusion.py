"""verl's own reward for code, unchanged, with our server as its SandboxFusion."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from services import Service, serving
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager
from verl.utils.reward_score import default_compute_score
from verl.utils.reward_score.sandbox_fusion import compute_score
from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

from verl_agentic.base.paths import recipes_dir
from verl_agentic.sandbox.local.local_backend import LocalBackend

DOUBLE = {"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["2\n", "4\n", "6\n", "8\n"]}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(LocalBackend(is_trusted=True), size=4, token="sesame") as running:
        yield running


@pytest.fixture
def url(service: Service) -> str:
    """The value of `reward.sandbox_fusion.url`: verl can show a token only as the password of the URL."""
    return service.url.replace("://", "://verl:sesame@") + "/run_code"


def block(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```\n"


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("code", "score", "states"),
    [
        ("print(2 * int(input()))", 1.0, ["success"] * 4),
        ("x = int(input())\nprint(2 * x if x < 3 else 0)", 0.5, ["success"] * 2 + ["wrong_answer"] * 2),
        ("x = int(input())\nassert x > 1\nprint(2 * x)", 0.75, ["runtime_error"] + ["success"] * 3),
        ("print(", 0.0, ["runtime_error"] * 4),
    ],
)
def test_the_score_is_the_share_of_tests_that_pass(url: str, code: str, score: float, states: list[str]) -> None:
    found, details = compute_score(url, threading.Semaphore(4), 512, block(code), DOUBLE)
    assert found == score
    assert [detail["status"] for detail in details] == states


def test_the_default_reward_of_code_data_uses_the_url(url: str) -> None:
    truth = json.dumps({"fn_name": "double", "inputs": ["1", "2"], "outputs": ["2", "4"]})
    score = default_compute_score(
        "codecontests", block("def double(x):\n    return 2 * x"), truth, sandbox_fusion_url=url, memory_limit_mb=512
    )
    assert score == 1.0


@pytest.mark.slow
async def test_the_recipe_gives_the_url_to_verls_reward_manager(url: str) -> None:
    """From the recipe's YAML to a score, by verl's own code."""
    paths = ["actor_rollout_ref.model.path=M", "data.train_files=T", "data.val_files=V", "trainer.default_local_dir=O"]
    search = "hydra.searchpath=[pkg://verl.trainer.config,pkg://verl_agentic.config]"
    with initialize_config_dir(str(recipes_dir() / "sandbox_fusion"), version_base=None):
        config = compose("grpo", overrides=[search, f"reward.sandbox_fusion.url='{url}'", *paths])
    manager = load_reward_manager(config, _Characters())

    async def score(answer: str) -> float:
        ids = torch.tensor([[ord(c) for c in answer]])
        row = {
            "data_source": np.array(["codecontests"], dtype=object),
            "reward_model": np.array([{"ground_truth": json.dumps(DOUBLE)}], dtype=object),
        }
        data = DataProto.from_dict({"responses": ids, "attention_mask": torch.ones_like(ids)}, row)
        return (await manager.run_single(data))["reward_score"]

    assert await score(block("print(2 * int(input()))")) == 1.0
    assert await score(block("print(4)")) == 0.25
    assert await score("I do not know.") == 0.0


class _Characters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids: torch.Tensor, *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids.tolist()))


@pytest.mark.slow
def test_a_hanging_solution_is_a_timeout_and_greed_a_runtime_error(url: str) -> None:
    tests = {"inputs": ["", ""], "outputs": ["", ""]}
    results, details = check_correctness(url, tests, "while True: pass", timeout=1)
    assert results == [-3, -3] and {detail["status"] for detail in details} == {"timeout"}
    results, _ = check_correctness(url, tests, "x = bytearray(2**30)", timeout=10, memory_limit_mb=256)
    assert results == [-2, -2]


def test_without_the_token_verl_calls_it_an_api_error_and_not_a_wrong_answer(service: Service) -> None:
    results, details = check_correctness(f"{service.url}/run_code", DOUBLE, "print(1)", timeout=5)
    assert results == [-1] * 4 and {detail["status"] for detail in details} == {"api_error"}


@pytest.mark.slow
def test_a_service_that_is_busy_for_a_moment_costs_no_score() -> None:
    # 504 is the one answer that verl's client sends again.
    with serving(LocalBackend(is_trusted=True), size=1, queue_timeout_s=0.5) as service:
        code = "import time\ntime.sleep(0.6)\nprint(2 * int(input()))"
        tests = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}
        score, _ = compute_score(f"{service.url}/run_code", None, 512, block(code), tests)
    assert score == 1.0
