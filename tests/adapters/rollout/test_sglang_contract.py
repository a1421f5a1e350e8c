"""Episodes on verl's SGLang server: verl's own client and server, and a fake of SGLang behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf
from sglang_server import SGLang, make_client, make_server, verls_server
from stage import CALL, SAMPLING, Chat, Stage, make_stage, row
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from verl_agentic.verl.config_root import prepare

NUMBER, ANSWER = "<double>21</double>", "<answer>42</answer>"
PROTOCOL = """
kind: tags
calls: [{tool: double, argument: number, tags: [<double>, </double>]}]
answer: {tags: [<answer>, </answer>]}
stop: [</double>, </answer>]
invalid_action: Try again.
"""


@pytest.fixture(scope="module")
def verls() -> Iterator[type]:
    with verls_server() as found:
        yield found


@pytest.fixture
def tags(tmp_path: Path) -> dict[str, str]:
    """A protocol with stop texts, as a section of the configuration."""
    (tmp_path / "tags.yaml").write_text(PROTOCOL)
    return {"protocol": str(tmp_path / "tags.yaml")}


@pytest.fixture
def stage(tmp_path: Path, tiny_chat: Chat) -> Stage:
    return make_stage(tmp_path, tiny_chat[0])


async def _play(stage: Stage, verls: type, *texts: str, client: type = LLMServerClient, **options: Any) -> Any:
    """Returns the row of an episode, and the fake."""
    section = options.pop("section", {})
    max_model_len = options.pop("max_model_len", 1024)
    behind = SGLang(stage.tokenizer, texts, **{"has_tokenizer": True, "aborts_at": None, **options})
    servers = make_client(client, make_server(verls, behind, max_model_len=max_model_len))
    loop = stage.loop(servers, rollout={"name": "sglang"}, **section)
    (output,) = await loop.run(dict(SAMPLING), **row())
    return output, behind


def _trained(output: Any, tokenizer: Any) -> str:
    pairs = zip(output.response_ids, output.response_mask, strict=True)
    return tokenizer.decode([token for token, mask in pairs if mask])


async def test_calls_are_carried_out_and_log_probs_belong_to_the_sampled_tokens(stage: Stage, verls: type) -> None:
    output, behind = await _play(stage, verls, CALL, "42")
    assert (output.reward_score, output.extra_fields["stop_reason"]) == (0.875, "answered")
    sampled = zip(output.response_logprobs, output.response_mask, strict=True)
    assert {log_prob for log_prob, mask in sampled if mask} == {-0.5}
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (7, 7)
    first, second = (request.sampling_params for request in behind.requests)
    assert first["temperature"] == SAMPLING["temperature"] and second["max_new_tokens"] < first["max_new_tokens"]


async def test_stop_texts_are_sampled_and_trained_without_the_field_that_sglang_lacks(
    stage: Stage, verls: type, tags: dict[str, str]
) -> None:
    texts = (f"{NUMBER} never sampled", f"{ANSWER} never sampled")
    output, behind = await _play(stage, verls, *texts, section=tags)
    assert _trained(output, stage.tokenizer) == NUMBER + ANSWER
    assert output.extra_fields["stop_reason"] == "answered" and len(behind.requests) == 2
    assert all(request.sampling_params["stop"] == ["</double>", "</answer>"] for request in behind.requests)


async def test_a_turn_that_the_server_cuts_below_its_budget_is_no_answer(stage: Stage, verls: type) -> None:
    prompt, _ = await _play(stage, verls, "42")
    # The server leaves room for fewer tokens than the episode asks for.
    room = len(prompt.prompt_ids) + 5
    output, behind = await _play(stage, verls, "4" * 50, max_model_len=room)
    (request,) = behind.requests
    assert request.sampling_params["max_new_tokens"] == len(output.response_ids) == 4
    assert output.extra_fields["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("is_ended", [True, False])
async def test_a_full_budget_is_a_cut_unless_the_turn_ends_in_it(stage: Stage, verls: type, is_ended: bool) -> None:
    length = len(stage.tokenizer.encode("42")) + (1 if is_ended else 0)
    output, _ = await _play(stage, verls, "42", section={"limits": {"max_turn_tokens": length}})
    assert len(output.response_ids) == length
    assert output.extra_fields["stop_reason"] == ("answered" if is_ended else "max_tokens")


@pytest.mark.sample(1)
@pytest.mark.parametrize("aborts_at", [0, 3])
async def test_a_turn_that_a_weight_update_aborts_is_continued(stage: Stage, verls: type, aborts_at: int) -> None:
    whole, _ = await _play(stage, verls, CALL, "42")
    options: dict[str, Any] = {"client": FullyAsyncLLMServerClient, "aborts_at": aborts_at}
    # verl's client waits a second before it goes on.
    options["section"] = {"limits": {"max_turns": 3, "turn_timeout_s": 60}}
    output, behind = await _play(stage, verls, CALL, "42", **options)
    assert len(behind.requests) == 3
    assert output.response_ids == whole.response_ids and output.response_logprobs == whole.response_logprobs
    first, rest, _ = behind.requests
    assert rest.input_ids == [*first.input_ids, *output.response_ids[:aborts_at]]
    assert rest.sampling_params["max_new_tokens"] == first.sampling_params["max_new_tokens"] - aborts_at


async def test_a_turn_that_stays_aborted_makes_a_void_row(stage: Stage, verls: type) -> None:
    output, _ = await _play(stage, verls, CALL, "42", aborts_at=3)
    assert output.extra_fields["stop_reason"] == "cancelled" and not any(output.response_mask)


async def test_without_a_tokenizer_the_server_cannot_end_a_turn_at_a_text(
    stage: Stage, verls: type, tags: dict[str, str]
) -> None:
    output, _ = await _play(stage, verls, NUMBER, section=tags, has_tokenizer=False)
    assert "no attribute 'decode'" in output.extra_fields["error"]


@pytest.mark.parametrize(
    ("name", "protocol", "expected"),
    [("sglang", "search_r1", False), ("sglang", "chat", True), ("sglang", None, True), ("vllm", "search_r1", True)],
)
def test_the_server_gets_a_tokenizer_where_the_protocol_has_stop_texts(
    name: str, protocol: str | None, expected: bool
) -> None:
    rollout = {"name": name, "skip_tokenizer_init": True, "agent": {"default_agent_loop": "env_agent"}}
    section = {} if protocol is None else {"custom": {"agentic": {"protocol": protocol}}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {**rollout, **section}}})
    chosen = prepare(config)
    assert config.actor_rollout_ref.rollout.skip_tokenizer_init is expected
    assert ("actor_rollout_ref.rollout.skip_tokenizer_init=False (agentic.protocol)" in chosen) is not expected
