"""model_router in the loop: routes are answered and paid for, and the reward of Router-R1 reads the cost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import (
    ConfigError,
    EnvError,
    EnvRow,
    Episode,
    EpisodeLimits,
    Message,
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.base.types import StopReason
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.graders.components.router_r1 import cheapness_of
from verl_agentic.rewards.component import load_component

from .env import make_env
from .gold import gold
from .pool import SPECIALISTS, make_pool

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
HOME, TEACHER, RIVER = EXAMPLES[:3]
PERSON = HOME.extra["queries"][0].split()[-2]
LIMITS = EpisodeLimits(max_response_tokens=8_000, max_context_tokens=9_000, max_turns=8, max_retries=0)
COST_RANGE = [1, 200]


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), "chat", "router_r1")
    return {"tokenizer": tokenizer, **codecs}


async def play(
    codecs: dict[str, Any], row: EnvRow, next_text: Any, *, protocol: str = "router_r1", **config: Any
) -> Episode:
    return await run_episode(
        row,
        make_env=lambda row: make_env(row, **config),
        setup=scripted(next_text, codec=codecs[protocol], tokenizer=codecs["tokenizer"], limits=LIMITS),
        request_id="r",
    )


def routes(*queries: str, answer: str) -> Any:
    turns = [f"<think>I ask.</think>\n<search>{query}</search>" for query in queries]
    turns.append(f"<think>So it is.</think>\n<answer>{answer}</answer>")
    return lambda messages: turns[sum(m.role == "assistant" for m in messages)]


def reward(episode: Episode, row: EnvRow, *, alpha: float = 0.6) -> float | None:
    options = {"alpha": alpha, "cheapness": "cost", "cost_range": COST_RANGE}
    component = load_component("router_r1").make(options)
    return component.checked(component(to_sample(episode, row, id="r"))).value


def observed(episode: Episode) -> list[str]:
    return [message.content for message in episode.messages if message.role == "tool"]


@pytest.mark.parametrize("row", [HOME, TEACHER, RIVER], ids=["home", "teacher", "river"])
@pytest.mark.parametrize("protocol", ["chat", "router_r1"])
async def test_the_cheapest_routes_lead_to_the_answer(codecs: Any, row: EnvRow, protocol: str) -> None:
    solution, write = gold(row), codecs[protocol].render_action
    episode = await play(codecs, row, lambda messages: write(solution(messages)), protocol=protocol)
    assert episode.reward.outcome == 1.0 and episode.reward.info["routes"] == len(row.extra["queries"])


async def test_the_cost_is_the_tokens_of_all_replies_times_their_prices(codecs: Any) -> None:
    queries = (f"census-8b: Where does {PERSON} live?", f"oracle-120b: On which river does {PERSON} live?")
    episode = await play(codecs, RIVER, routes(*queries, answer=RIVER.ground_truth))
    lengths = [-(-len(text) // 4) for text in observed(episode)]
    assert episode.reward.info["cost"] == pytest.approx(0.2 * lengths[0] + 1.8 * lengths[1])
    assert episode.reward.info["route_output_tokens"] == sum(lengths)


async def test_the_reward_prefers_the_cheap_way_to_the_same_answer(codecs: Any) -> None:
    cheap = await play(codecs, RIVER, routes(*RIVER.extra["queries"], answer=RIVER.ground_truth))
    big = f"oracle-120b: On which river lies the town where {PERSON} lives?"
    dear = await play(codecs, RIVER, routes(big, answer=RIVER.ground_truth))
    wrong = await play(codecs, RIVER, routes("guess-1b: Which river?", answer="Rome"))
    broken = await play(codecs, RIVER, lambda messages: f"<answer>{RIVER.ground_truth}</answer>")
    # 0.4 * 1 + 0.6 * cheapness of this episode's cost
    for episode in (cheap, dear):
        cheapness = cheapness_of(episode.reward.info["cost"], low=COST_RANGE[0], high=COST_RANGE[1])
        assert reward(episode, RIVER) == pytest.approx(0.4 + 0.6 * cheapness)
    assert (reward(cheap, RIVER) or 0) > 0.9 > 0.8 > (reward(dear, RIVER) or 0) > 0.4
    assert (reward(wrong, RIVER), reward(broken, RIVER)) == (0.0, -1.0)
    assert reward(dear, RIVER, alpha=0.0) == 1.0


async def test_an_unknown_model_is_an_error_for_the_policy_and_costs_nothing(codecs: Any) -> None:
    episode = await play(codecs, HOME, routes("gpt-9: who?", "census-8b:", "no colon", answer="x"))
    unknown, no_question, no_colon = observed(episode)
    assert "there is no model 'gpt-9'; ask one of census-8b, atlas-8b" in unknown
    assert no_question == no_colon and "a colon and the question" in no_colon
    assert episode.reward.info["cost"] == episode.reward.info["routes"] == 0.0 and not episode.is_void
    assert episode.numbers()["call_error/wrong_arguments"] == 3.0


async def test_the_fifth_route_is_refused(codecs: Any) -> None:
    query = f"guess-1b: Where does {PERSON} live?"
    episode = await play(codecs, HOME, routes(*[query] * 5, answer=HOME.ground_truth))
    assert ["limit" in text for text in observed(episode)] == [False] * 4 + [True]
    assert (episode.reward.info["routes"], episode.reward.outcome) == (4.0, 1.0)
    with pytest.raises(ConfigError, match="max_routes"):
        make_env(HOME, max_routes=0)


async def test_the_prompt_describes_every_model(codecs: Any) -> None:
    episode = await play(codecs, HOME, routes(answer="x"))
    prompt = episode.messages[0].content
    assert all(f"\n- {name}: {model.description}" in prompt for name, model in SPECIALISTS.items())
    assert HOME.ground_truth not in prompt


async def test_each_specialist_knows_its_own_part() -> None:
    verdicts = {
        name: [HOME.ground_truth in (await model.ask(f"Where does {PERSON} live?")).text,
               RIVER.ground_truth in (await model.ask(f"On which river lies {HOME.ground_truth}?")).text,
               RIVER.ground_truth in (await model.ask(f"On which river does {PERSON} live?")).text]
        for name, model in SPECIALISTS.items()
    }  # fmt: skip
    assert verdicts["census-8b"] == [True, False, False] and verdicts["atlas-8b"] == [False, True, False]
    assert verdicts["oracle-120b"] == [True, True, True] and verdicts["guess-1b"] == [False, False, False]


ENDPOINT = {"url": "http://127.0.0.1:9/v1", "model": "m", "timeout_s": 5}
SERVED = {"big": {"description": "large", "output_price": 2, "endpoint": ENDPOINT}}


async def test_a_model_behind_an_endpoint_is_asked_and_paid_by_its_own_count_of_tokens(codecs: Any) -> None:
    with_answers = ["HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"]
    body = '{"choices": [{"message": {"content": "Loneni"}}], "usage": {"prompt_tokens": 50, "completion_tokens": 7}}'
    bodies: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        writer.write((with_answers[0] % (len(body), body)).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    big = {**SERVED["big"], "input_price": 0.5, "endpoint": {**ENDPOINT, "url": f"http://127.0.0.1:{port}/v1"}}
    episode = await play(codecs, HOME, routes("BIG: where?", answer="Loneni"), models={"big": big})
    server.close()
    await server.wait_closed()
    assert observed(episode) == ["Loneni"] and b'"where?"' in bodies[0]
    assert episode.reward.info["cost"] == pytest.approx(50 * 0.5 + 7 * 2)


async def test_an_endpoint_that_gives_no_reply_voids_the_episode(codecs: Any) -> None:
    endpoint = {**ENDPOINT, "timeout_s": 0.2}
    pool = make_pool({"big": {**SERVED["big"], "endpoint": endpoint}})
    with pytest.raises(EnvError, match="'m'"):
        await pool["big"].ask("who?")
    models = {"big": {**SERVED["big"], "endpoint": endpoint}}
    episode = await play(codecs, HOME, routes("big: who?", answer="x"), models=models)
    assert (episode.is_void, episode.stop_reason) == (True, StopReason.INFRA_ERROR)


@pytest.mark.parametrize("models", [{}, {"a:b": SERVED["big"]}, {"Big": SERVED["big"]}])
def test_names_that_a_route_cannot_have_are_refused(models: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="models"):
        make_env(HOME, models=models)
    with pytest.raises(ConfigError, match="'output_price'"):
        make_env(HOME, models={"big": {"description": "x", "endpoint": ENDPOINT}})


def test_rows_of_others_are_answered_at_once_by_the_solution() -> None:
    row = EnvRow(prompt=(Message("user", "Capital of France?"),), ground_truth=["Paris"])
    assert gold(row)(row.prompt).content == "Paris"
