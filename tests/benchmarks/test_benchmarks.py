"""The benchmarks and studies run, and print what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.cpu.model_fetch.fetch import folder_of
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend

_FOLDER = Path(__file__).parents[2] / "benchmarks"
_PEERS = _FOLDER.parent / "build" / "peers"
_SMOLLM2 = folder_of("smollm2", dtype="bfloat16")

_LOOPS = ("tool_agent", "env_agent")


def run(name: str, *options: str, timeout_s: float = 280) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    (script,) = (*_FOLDER.glob(f"{name}.py"), *_FOLDER.parent.glob(f"studies/*/{name}.py"))
    done = subprocess.run(
        [sys.executable, str(script), "--quick", *options],
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.stdout, done.stderr[-2_000:]
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["benchmark"] == name
    return printed, done


@pytest.fixture
async def namespaces() -> None:
    """Skips where sandboxes of namespaces cannot be had."""
    backend = NamespaceBackend()
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    await backend.close()


@pytest.mark.nightly
@pytest.mark.usefixtures("namespaces")
def test_of_episodes_that_go_wrong_each_ends_as_it_must_in_time_and_leaves_nothing() -> None:
    printed, done = run("faults", timeout_s=900)
    figures = printed["figures"]
    assert (figures["void_by_policy"], figures["raised"]) == (0, 0) and figures["hostile_episodes"] >= 48
    assert (figures["wrong_stop_reasons"], figures["leftovers"]) == (0, 0), done.stderr[-2_000:]
    assert printed["ratios"]["slowest_over_deadline"] <= 1.5
    assert done.returncode == 0
    of_kinds = {name.removeprefix("faults."): n for name, n in figures.items() if name.startswith("faults.")}
    assert set(of_kinds) == {"good", "hangs", "raises", "loses_sandbox", "floods", "malformed"}
    assert sum(of_kinds.values()) == figures["episodes"] and figures["kinds_of_faults"] > 30


@pytest.mark.nightly
def test_agents_behind_the_gateway_have_equal_tokens_and_leave_nothing() -> None:
    printed, done = run("gateway")
    figures = printed["figures"]
    assert (figures["wrong_stop_reasons"], figures["leftovers"]) == (0, 0), done.stderr[-2_000:]
    assert printed["ratios"]["equal_tokens"] == 1.0 and figures["faulty_agents"] >= 26
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target


@pytest.mark.nightly
def test_the_cost_of_the_loop_is_measured_on_the_same_tokens_as_verls() -> None:
    printed, done = run("env_loop")
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target
    timed = {"cpu_vs_tool_agent_loop", "logged_vs_tool_agent_loop", "turn_cost_growth", "blocked_share"}
    assert set(printed["targets"]) == timed
    assert all(target["value"] > 0 for target in printed["targets"].values())
    assert printed["targets"]["turn_cost_growth"]["value"] < 2.0, "a turn costs more the later it comes"
    assert printed["figures"]["response_tokens"] > 1_000


@pytest.mark.nightly
def test_the_way_of_a_turn_is_measured_on_the_same_turns_as_verls() -> None:
    printed, done = run("rollout_path")
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss the target
    assert set(printed["targets"]) == {"gen_vs_tool_agent.scripted.threads"}
    spent = {loop: printed["figures"][f"cpu_ms_per_turn.scripted.threads.this.{loop}"] for loop in _LOOPS}
    assert all(sum(by_work.values()) > 0.5 for by_work in spent.values())
    assert "scoring" in spent["tool_agent"] and "trajectory log" in spent["env_agent"]
    assert spent["env_agent"].get("other", 0.0) < 0.2 * sum(spent["env_agent"].values()), "most work has a name"


@pytest.mark.nightly
def test_an_environment_server_is_measured_beside_the_local_environment() -> None:
    printed, done = run("env_server")
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target
    assert printed["targets"]["shared_vs_single_requests"]["ok"]
    assert 0 < printed["ratios"]["episodes_per_s_vs_local"] < 1 < printed["ratios"]["cpu_vs_local"]


@pytest.mark.nightly
def test_an_evaluation_on_a_cluster_loses_no_episode_when_a_node_and_the_driver_die() -> None:
    printed, done = run("cluster")
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target
    assert printed["figures"]["lost_or_doubled"] == 0
    assert set(printed["ratios"]) == {"speedup_2_workers", "overhead_1_worker"}


@pytest.mark.nightly
def test_long_episodes_are_trained_with_a_critic_and_with_branches_and_their_gradients_are_compared() -> None:
    printed, done = run("long_episodes", timeout_s=900)
    assert done.returncode == 0, done.stderr[-4_000:]
    figures = printed["figures"]
    assert figures["trainings"] == 2, done.stderr[-4_000:]
    assert all(0 <= figures[f"{method}/success_rl"] <= 1 for method in ("turn_gae_subgoals", "arpo"))
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    trained, compared = rows[1:3], [row for row in rows if row[0].startswith("| `")]
    assert [row[2] for row in trained] == ["1", "1"] and [row[7] for row in trained] == ["2", "2"]
    assert len(compared) == 12 and {row[1] for row in compared} == {"sparse", "subgoals"}


@pytest.mark.nightly
def test_methods_of_credit_are_trained_from_one_start_and_tabulated_with_their_tokens() -> None:
    printed, done = run("credit_results", timeout_s=900)
    assert done.returncode == 0, done.stderr[-4_000:]
    figures = printed["figures"]
    assert figures["trainings"] == 2, done.stderr[-4_000:]
    assert all(0 <= figures[f"quickstart/{method}/success_rl_mean"] <= 1 for method in ("grpo", "gigpo"))
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| quickstart")]
    assert [row[1] for row in rows] == ["GRPO (verl's)", "GiGPO"]
    assert all(float(row[6]) > 0 and row[7:9] == ["2", "32"] for row in rows)


@pytest.mark.nightly
def test_a_budget_is_divided_between_sft_and_rl(tmp_path: Path) -> None:
    printed, done = run("budget_split", "--out", str(tmp_path), timeout_s=900)
    assert done.returncode == 0, done.stderr[-4_000:]
    (row,) = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| 0.2")]
    assert float(row[1]) > 0 and 0 <= printed["figures"]["success_rl.0.2"] <= 1
    (log,) = (tmp_path / "0.2" / "sft" / "logs").glob("sft_*.jsonl")
    lengths = [len(row["input_ids"]) for _, row in read_json_lines(tmp_path / "0.2" / "sft" / "data" / "sft.jsonl")]
    tokens = len(log.read_text().splitlines()) * 32 * sum(lengths) / len(lengths)
    assert tokens == pytest.approx(0.2 * 20_000, abs=16 * max(lengths)), "up to half a step"


@pytest.mark.nightly
def test_what_log_and_audit_cost_is_measured_beside_the_least_step() -> None:
    printed, done = run("trajectory_log")
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target
    assert set(printed["targets"]) == {"log_share_of_step", "audit_share_of_step"}
    assert all(0 < target["value"] < 0.1 for target in printed["targets"].values())
    assert printed["figures"]["bytes_per_token"] < 30


@pytest.mark.nightly
@pytest.mark.usefixtures("namespaces")
def test_naive_graders_pay_for_cheats_and_ours_pays_for_none() -> None:
    printed, done = run("swe_cheats")
    figures = printed["figures"]
    assert done.returncode == 0, done.stderr[-2_000:]
    assert (figures["paid"], figures["unpaid_fixes"], figures["false_alarms"]) == (0, 0, 0)
    assert (figures["paid_naive"], figures["cheats"], figures["gradings"]) == (4, 6, 8)
    assert figures["honest_tests"] == 13


@pytest.mark.nightly
@pytest.mark.usefixtures("namespaces")
def test_episodes_on_repositories_with_faults_lose_no_verdict_and_leave_nothing() -> None:
    printed, done = run("swe")
    figures = printed["figures"]
    assert done.returncode in (0, 1), done.stderr[-2_000:]  # a busy machine may miss a target
    assert (figures["episodes"], figures["lost"], figures["leftovers"]) == (9, 0, 0), done.stderr[-2_000:]
    assert figures["setup_ms"] > 0 and figures["grade_solved_ms"] > figures["pytest_ms"]
    assert ("setup_vs_docker" in printed.get("reasons", {})) == (printed["ratios"]["setup_vs_docker"] is None)


@pytest.mark.nightly
def test_engines_are_compared_where_vllm_is_installed_and_else_say_why_not() -> None:
    printed, done = run("engines", timeout_s=900)
    assert done.returncode == 0, done.stderr[-2_000:]
    figures, ratios = printed["figures"], printed["ratios"]
    assert figures["agentic.tokens_per_s"] > 0 and figures["agentic.step_s"] > figures["agentic.gen_s"] > 0
    if figures["vllm.tokens_per_s"] is None:
        assert set(ratios.values()) == {None} and "make vllm" in printed["reasons"]["vs_vllm_cpu"]
    else:
        assert ratios["step_vs_vllm"] == pytest.approx(figures["vllm.step_s"] / figures["agentic.step_s"], rel=1e-3)


@pytest.mark.nightly
@pytest.mark.skipif(not _SMOLLM2.exists(), reason="needs the model of `make real-model`")
def test_the_engine_and_transformers_write_the_same_tokens_with_a_pretrained_model() -> None:
    printed, done = run("engines", "--model", "smollm2", timeout_s=900)
    assert done.returncode == 0, done.stderr[-2_000:]
    figures = printed["figures"]
    assert figures["same_output_as_hf"] >= 0.75  # rounding may decide between two likely tokens
    assert printed["ratios"]["vs_hf_generate"] > 1.0 and figures["weights_gb"] == pytest.approx(0.501, abs=2e-3)


@pytest.mark.nightly
def test_a_shared_prompt_saves_time_and_changes_no_gradient() -> None:
    printed, done = run("shared_prompts")
    assert done.returncode == 0, done.stderr[-2_000:]
    assert printed["figures"]["gradient_max_difference"] <= 1e-5
    assert printed["ratios"]["vs_padded.8x1024"] > 2.0


@pytest.mark.nightly
@pytest.mark.skipif(not _PEERS.exists(), reason="needs the environments of `make peers`")
def test_all_trainers_get_the_same_prompts_and_none_trains_on_observations(tmp_path: Path) -> None:
    printed, done = run("peers", "--out", str(tmp_path), timeout_s=900)
    figures = printed["figures"]
    assert done.returncode == 0, done.stderr[-4_000:]
    assert max(figures[f"sampled_log_prob_max_diff.{side}"] for side in ("ours", "trl")) < 1e-4
    for side in ("ours", "trl", "swift"):
        assert figures[f"observation_tokens_trained_share.{side}"] == 0.0
        assert figures[f"trained_log_prob_max_diff.{side}"] < 1e-4
        assert figures[f"peak_memory_gb.{side}"] > 0.2 and figures[f"cpu_s_per_step.{side}"] > 0.1
    assert printed["targets"]["seconds_to_success_vs_trl"]["ok"] is None  # three steps do not suffice
    assert "has not reached" in printed["reasons"]["seconds_to_success_vs_trl"]
