"""Lengths of prompt and response compared with model and server."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun

_ROLLOUT = "actor_rollout_ref.rollout"


def context_length(run: PlannedRun) -> list[Finding]:
    """Returns lengths that are too long for the model, the server, or a training batch."""
    prompt = run.number(f"{_ROLLOUT}.prompt_length", run.number("data.max_prompt_length"))
    response = run.number(f"{_ROLLOUT}.response_length", run.number("data.max_response_length"))
    total = prompt + response
    need = f"prompt and response may have {prompt} + {response} = {total} tokens"
    findings = []
    if run.model is not None and run.model.max_tokens is not None and total > run.model.max_tokens:
        findings.append(
            fail(
                f"{need} and the model has {run.model.max_tokens} positions",
                "lower data.max_prompt_length or data.max_response_length, or stretch the model "
                "(model.override_config: rope scaling)",
            )
        )
    server = run.get(f"{_ROLLOUT}.max_model_len")
    if server is not None and total > server:
        findings.append(fail(f"{need} and {_ROLLOUT}.max_model_len is {server}", "raise it, or unset it"))
    longest = server if server is not None or run.model is None else run.model.max_tokens
    if run.get(f"{_ROLLOUT}.name") == "sglang" and total == longest:
        findings.append(
            fail(
                f"{need} and verl's SGLang server leaves one of {longest} positions free; full episodes would be void",
                "lower data.max_response_length by 1",
            )
        )
    batched = run.number(f"{_ROLLOUT}.max_num_batched_tokens", total)
    if run.get(f"{_ROLLOUT}.name") == "vllm" and not run.get(f"{_ROLLOUT}.enable_chunked_prefill") and batched < total:
        findings.append(
            fail(
                f"{need} and vLLM prefills at most {_ROLLOUT}.max_num_batched_tokens={batched} at once",
                "raise it, or set enable_chunked_prefill=true",
            )
        )
    if findings:
        return findings
    if run.model is None or run.model.max_tokens is None:
        return [not_tested(f"{need}; the number of the model's positions is unknown", "see the model's config.json")]
    return [ok(f"{need}; the model has {run.model.max_tokens} positions")]
