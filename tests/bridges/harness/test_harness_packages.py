"""Agents of published packages, unmodified, behind the gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_agentic.base.types import Message, StopReason, ToolCall

pytestmark = pytest.mark.filterwarnings("ignore")  # what the packages say at import
CALL = Message("assistant", "I multiply.", tool_calls=(ToolCall("multiply", {"left": 6, "right": 7}),))


def solution(messages: Any) -> Message:
    """Calls the tool once, then says what it gave."""
    if messages[-1].role == "tool":
        return Message("assistant", messages[-1].content)
    return CALL


def is_42(row: Any, result: Any, transcript: Any) -> float:
    return float(str(result).strip() == "42")


def multiply(left: int, right: int) -> str:
    """Multiplies two numbers.

    Args:
        left: the first number.
        right: the second number.
    """
    return str(left * right)


@pytest.mark.sample(1)
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_openai_agents_sdk(stage: Any, api: str, streams: bool) -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")

    async def agent(row: Any, endpoint: Any) -> str:
        agents.set_tracing_disabled(True)
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key) as client:
            kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
            worker = agents.Agent(
                name="worker",
                instructions="Use the tool.",
                model=kind(model=endpoint.model, openai_client=client),
                tools=[agents.function_tool(multiply)],
            )
            if not streams:
                return (await agents.Runner.run(worker, row.prompt[0].content)).final_output
            running = agents.Runner.run_streamed(worker, row.prompt[0].content)
            async for _ in running.stream_events():
                pass
            return running.final_output

    episode, policy = await stage.play(agent, solution, score=is_42)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error
    (row,) = episode.trajectories
    assert len(episode.actions) == 2 and "multiply" in stage.text(row.prompt_ids)
    assert [m.name for m in episode.messages if m.role == "tool"] == ["multiply"]


@pytest.mark.slow
async def test_langgraph(stage: Any) -> None:
    prebuilt, chat = pytest.importorskip("langgraph.prebuilt"), pytest.importorskip("langchain_openai")

    async def agent(row: Any, endpoint: Any) -> str:
        model = chat.ChatOpenAI(model=endpoint.model, base_url=endpoint.base_url, api_key=endpoint.api_key)
        graph = prebuilt.create_react_agent(model, [multiply])
        state = await graph.ainvoke({"messages": [("user", row.prompt[0].content)]})
        return state["messages"][-1].content

    episode, policy = await stage.play(agent, solution, score=is_42)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.trajectories), len(episode.actions)) == (1.0, 1, 2), episode.error


def smolagent(kind: str, endpoint: Any, **options: Any) -> Any:
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIServerModel(model_id=endpoint.model, api_base=endpoint.base_url, api_key=endpoint.api_key)
    tool = smolagents.tool(multiply)
    return getattr(smolagents, kind)(tools=[tool], model=model, verbosity_level=0, **options)


async def test_smolagents_calls_its_tools_and_rewrites_its_history_in_every_step(stage: Any) -> None:
    pytest.importorskip("smolagents")

    def script(messages: Any) -> Message:
        if "42" in messages[-1].content:
            return Message("assistant", "", tool_calls=(ToolCall("final_answer", {"answer": "42"}),))
        return CALL

    episode, policy = await stage.play(
        lambda row, endpoint: smolagent("ToolCallingAgent", endpoint).run("What is 6*7?"), script, score=is_42
    )
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0, episode.error
    first, second = episode.trajectories
    assert "Calling tools" in stage.text(second.prompt_ids), "the call is a text in the second prompt"
    assert set(first.turn_ids) == {0} and set(second.turn_ids) == {1}


async def test_smolagents_that_write_code_stop_at_their_stop_text(stage: Any, limits: Any) -> None:
    pytest.importorskip("smolagents")

    def script(messages: Any) -> str:
        answer = "final_answer(6*7)" if "Out" in messages[-1].content else "print('Out', multiply(left=6, right=7))"
        return f"Thought: go.\n<code>\n{answer}\n</code> and so on"

    episode, policy = await stage.play(
        lambda row, endpoint: smolagent("CodeAgent", endpoint).run("What is 6*7?"),
        script,
        score=is_42,
        limits=replace(limits, max_context_tokens=20_000),  # its instructions are long
    )
    assert episode.reward.outcome == 1.0, episode.error
    text = stage.text([i for row in episode.trajectories for i in row.response_ids])
    assert "</code>" in text and "and so on" not in text
    sampled = sum(row.num_model_tokens for row in episode.trajectories)
    assert 0 < sampled < sum(len(ids) for _, ids, _ in policy.samples)


@pytest.mark.slow
async def test_mini_swe_agent(stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    default = pytest.importorskip("minisweagent.agents.default")
    litellm_model = pytest.importorskip("minisweagent.models.litellm_model")
    local = pytest.importorskip("minisweagent.environments.local")

    def agent(row: Any, endpoint: Any) -> str:
        model = litellm_model.LitellmModel(
            model_name=f"openai/{endpoint.model}",
            model_kwargs={"api_base": endpoint.base_url, "api_key": endpoint.api_key},
            cost_tracking="ignore_errors",
        )
        worker = default.DefaultAgent(
            model, local.LocalEnvironment(cwd=str(tmp_path)), system_template="Use bash.", instance_template="{{task}}"
        )
        return worker.run(row.prompt[0].content)["submission"]

    def script(messages: Any) -> Message:
        command = (
            "expr 6 '*' 7 > out"
            if messages[-1].role == "user"
            else ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat out")
        )
        return Message("assistant", "", tool_calls=(ToolCall("bash", {"command": command}),))

    episode, policy = await stage.play(agent, script, score=is_42)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.trajectories), len(episode.actions)) == (1.0, 1, 2), episode.error
    assert episode.stop_reason is StopReason.ENV_DONE


@pytest.mark.slow
async def test_mini_swe_agent_ends_at_once_when_a_budget_ends_its_episode(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    seen: list[str] = []

    async def agent(row: Any, endpoint: Any) -> str:
        model = {"model": "openai/m", "api_base": endpoint.base_url, "api_key": endpoint.api_key}
        messages = [{"role": "user", "content": "one"}]
        for _ in range(9):
            try:
                said = await litellm.acompletion(messages=messages, **model)
            except Exception as error:
                seen.append(type(error).__name__)
                raise
            messages += [said.choices[0].message.model_dump(), {"role": "user", "content": "on"}]
        return ""

    episode, _ = await stage.play(agent, lambda messages: "python")
    assert (episode.stop_reason, len(episode.actions)) == (StopReason.MAX_TURNS, 8)
    assert seen == ["NotFoundError"], "an error that mini-swe-agent does not retry"


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_anthropic_sdk(stage: Any, streams: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    tool = {
        "name": "multiply",
        "description": "Multiplies.",
        "input_schema": {"type": "object", "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}}},
    }

    async def agent(row: Any, endpoint: Any) -> str:
        options = {"model": "m", "max_tokens": 200, "system": [{"type": "text", "text": "Use the tool."}]}
        messages: list[Any] = [{"role": "user", "content": row.prompt[0].content}]
        async with anthropic.AsyncAnthropic(base_url=endpoint.url, api_key=endpoint.api_key) as client:
            while True:
                if streams:
                    async with client.messages.stream(messages=messages, tools=[tool], **options) as stream:
                        said = await stream.get_final_message()
                else:
                    said = await client.messages.create(messages=messages, tools=[tool], **options)
                assert said.usage.input_tokens > 0 and said.usage.output_tokens > 0
                calls = [block for block in said.content if block.type == "tool_use"]
                assert said.stop_reason == ("tool_use" if calls else "end_turn")
                if not calls:
                    return said.content[0].text
                messages.append({"role": "assistant", "content": said.content})
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": multiply(**call.input)} for call in calls
                ]
                messages.append({"role": "user", "content": results})

    episode, policy = await stage.play(agent, solution, score=is_42)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.trajectories)) == (1.0, 1), episode.error


@pytest.mark.slow
async def test_anthropic_sdk_reads_limits_and_errors(stage: Any) -> None:
    anthropic = pytest.importorskip("anthropic")

    async def agent(row: Any, endpoint: Any) -> str:
        options = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
        async with anthropic.AsyncAnthropic(base_url=endpoint.url, api_key=endpoint.api_key) as client:
            said = await client.messages.create(max_tokens=3, **options)
            assert (said.stop_reason, said.content[0].text) == ("max_tokens", "pyt")
            said = await client.messages.create(max_tokens=30, stop_sequences=["ho"], **options)
            assert (said.stop_reason, said.stop_sequence, said.content[0].text) == ("stop_sequence", "ho", "pyt")
            with pytest.raises(anthropic.BadRequestError, match="temperature"):
                await client.messages.create(max_tokens=30, extra_body={"temperature": 0.3}, **options)
        return "42"

    episode, _ = await stage.play(agent, lambda messages: "python")
    assert episode.reward.outcome == 1.0, episode.error or episode.reward.details


@pytest.mark.slow
async def test_responses_continue_from_an_earlier_answer_and_report_limits(stage: Any) -> None:
    openai = pytest.importorskip("openai")

    async def agent(row: Any, endpoint: Any) -> str:
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key) as client:
            first = await client.responses.create(model="m", instructions="Be brief.", input="one")
            second = await client.responses.create(
                model="m", instructions="Be brief.", input="two", previous_response_id=first.id, max_output_tokens=3
            )
            assert (second.status, second.output_text) == ("incomplete", "pyt")
            assert second.usage.output_tokens == 3 and second.usage.input_tokens > first.usage.input_tokens
            with pytest.raises(openai.BadRequestError, match="must be an answer of this session"):
                await client.responses.create(model="m", input="x", previous_response_id="resp_0")
            with pytest.raises(openai.BadRequestError, match="tools"):
                await client.responses.create(model="m", input="x", tools=[{"type": "web_search"}])
        return "42"

    episode, policy = await stage.play(agent, lambda messages: "python")
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and len(episode.trajectories) == 1, episode.reward.details
