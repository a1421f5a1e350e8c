"""Preflight renders what may follow a turn: it passes templates that can play, and fails those that cannot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from chat_templates import CHATML_WITH_TOOLS, REFUSING, SINGLE_TURN, STRIPS_THINKING
from transformers import AutoTokenizer
from verl_versions import needs_verl

from verl_agentic.base.finding import Finding
from verl_agentic.checks.preflight.result import judge
from verl_agentic.data.prepare import make_rows, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.verl.extensions.preflight.plan_run import plan

CONFIGS = Path(__file__).parents[2] / "fixtures" / "broken_configs"
THINKS = CHATML_WITH_TOOLS.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
PLAYS = {family.name: (family.template, "retool") for family in REFUSING} | {
    "thinks, with tools": (THINKS, "chat"),
    "thinks": (STRIPS_THINKING, "retool"),
}

NO_PREFIX = needs_verl(">=0.9.1", "agent loops that render no messages of their own, which such templates refuse")


@pytest.fixture
def judged(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    model, data = tmp_path / "model", tmp_path / "data"

    def judge_with(template: str, *overrides: str, env: str = "python_math") -> list[Finding]:
        shutil.copytree(tiny_model, model)
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|close|>"]})
        tokenizer.chat_template = template
        tokenizer.save_pretrained(model)
        rows = make_rows(load_env_package(env), split="train", count=24, seed=0)
        records = to_records(rows, env_id=env, split="train", agent_name="env_agent")
        data.mkdir()
        write_parquet(records, data / "train.parquet")
        write_parquet(records[:4], data / "test.parquet")
        for name, value in {"CONFIGS": CONFIGS, "MODEL": model, "DATA": data}.items():
            monkeypatch.setenv(f"PREFLIGHT_{name}", str(value))
        sizes = ["data.max_prompt_length=1500", "data.max_response_length=1500", f"agentic.env={env}"]
        path = ["hydra.searchpath=[pkg://verl_agentic.config]"]
        path += ["+actor_rollout_ref.model.override_config.max_position_embeddings=8192"]
        return judge(plan(CONFIGS, "base", [*path, *sizes, *overrides]))

    return judge_with


def found(findings: list[Finding], check: str) -> list[tuple[str, str]]:
    return [(finding.status, finding.found) for finding in findings if finding.check == check]


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=NO_PREFIX if n.startswith("alternating") else ()) for n in PLAYS]
)
def test_a_template_that_can_play_has_no_fault_and_its_solutions_score_1(judged: Any, name: str) -> None:
    template, protocol = PLAYS[name]
    findings = judged(template, f"agentic.protocol={protocol}")
    assert not [finding for finding in findings if finding.status == "fail"], findings
    assert [status for status, _ in found(findings, "rendering")] == ["ok"]
    assert [status for status, _ in found(findings, "reward")] == ["ok", "ok"]


@pytest.mark.sample(1)
@NO_PREFIX
@pytest.mark.parametrize(
    ("protocol", "env"),
    [("chat", "python_math"), ("retool", "python_math"), ("search_r1", "search_qa"), ("ragen", "text_game")],
)
def test_a_template_that_takes_nothing_after_a_turn_fails_before_the_run(judged: Any, protocol: str, env: str) -> None:
    findings = judged(SINGLE_TURN.template, f"agentic.protocol={protocol}", env=env)
    faults = found(findings, "rendering")
    assert {status for status, _ in faults} == {"fail"} and len(faults) == 3
    assert all("this template refuses it" in fault for _, fault in faults)


@pytest.mark.slow
def test_a_run_of_one_turn_needs_nothing_after_it(judged: Any) -> None:
    findings = judged(SINGLE_TURN.template, "agentic.protocol=retool", "agentic.limits.max_turns=1")
    assert not found(findings, "rendering")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("form", "servers"), [("given", {"sglang"}), ("sglang", {"vllm"})])
def test_servers_that_render_the_tools_otherwise_are_named(judged: Any, form: str, servers: set[str]) -> None:
    findings = judged(CHATML_WITH_TOOLS, f"++agentic.protocol_options.tools_as={form}")
    ((status, text),) = found(findings, "tools")
    assert status == "ok" and {name for name in ("vllm", "sglang") if f"{name} writes" in text} == servers, text
