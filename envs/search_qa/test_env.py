"""search_qa validated in the loop, with tokens: the searches lead to 1 in every protocol, everything else to 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import (
    ConfigError,
    DataError,
    EnvRow,
    Episode,
    EpisodeLimits,
    Message,
    StopReason,
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.base.types import SegmentKind
from verl_agentic.cpu.testing import tiny_codecs

from .docstrings import docstrings_folder, make_questions
from .env import make_env
from .gold import gold
from .rows import make_rows

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
ONE_HOP = next(row for row in EXAMPLES if row.extra["hops"] == 1)
TWO_HOPS = next(row for row in EXAMPLES if row.extra["hops"] == 2)
LIMITS = EpisodeLimits(max_response_tokens=5_000, max_context_tokens=6_000, max_turns=4, max_retries=0)
PROTOCOLS = ("chat", "search_r1", "research", "reseek", "ssrl")


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), *PROTOCOLS)
    return {"tokenizer": tokenizer, **codecs}


async def play(
    codecs: dict[str, Any], row: EnvRow, next_text: Any, *, protocol: str = "chat", **config: Any
) -> Episode:
    return await run_episode(
        row,
        make_env=lambda row: make_env(row, **config),
        setup=scripted(next_text, codec=codecs[protocol], tokenizer=codecs["tokenizer"], limits=LIMITS),
        request_id="r",
    )


async def play_solution(codecs: dict[str, Any], row: EnvRow, *, protocol: str = "chat", **config: Any) -> Episode:
    solution = gold(row)
    write = codecs[protocol].render_action
    return await play(codecs, row, lambda messages: write(solution(messages)), protocol=protocol, **config)


def turns(*texts: str) -> Any:
    """Returns a policy that plays texts one after the other, whatever it is answered; the last one for ever."""
    return lambda messages: texts[min(sum(m.role == "assistant" for m in messages), len(texts) - 1)]


def search(query: str) -> str:
    return f"<search>{query}</search>"


@pytest.mark.sample(5)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "row", [*EXAMPLES, *make_rows(split="test", count=2, seed=3)], ids=lambda r: r.extra["task_id"]
)
async def test_the_searches_of_the_solution_lead_to_1(codecs: Any, row: EnvRow, protocol: str) -> None:
    episode = await play_solution(codecs, row, protocol=protocol)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED)
    assert episode.numbers()["tool_calls"] == row.extra["hops"] == len(episode.actions) - 1
    assert episode.numbers()["tool_errors"] == 0.0


@pytest.mark.parametrize("row", [ONE_HOP, TWO_HOPS], ids=["1-hop", "2-hops"])
async def test_the_answer_stands_in_the_last_observation_alone_and_one_passage_is_enough(
    codecs: Any, row: EnvRow
) -> None:
    for top_k in (1, 3):
        episode = await play_solution(codecs, row, top_k=top_k)
        observations = [message.content for message in episode.messages if message.role != "assistant"]
        assert [row.ground_truth in text for text in observations] == [False] * (len(observations) - 1) + [True]
        assert observations[-1].startswith(f'Doc 1(Title: "{row.extra["queries"][-1]}") ')
        assert observations[-1].count("Doc ") <= top_k


@pytest.mark.parametrize(
    "texts",
    [
        ["Nobody knows."],
        ["{answer} or not"],
        ["In {answer}"],
        [""],
        ["{search}", "The search knows."],
        ["{search}", "{search}"],
        ["{echo}", "see the search"],
    ],
    ids=["wrong", "answer-and-more", "answer-in-a-sentence", "nothing", "only-found", "never-answers", "in-a-query"],
)
async def test_what_is_not_just_the_answer_scores_0_though_a_search_has_shown_it(codecs: Any, texts: list[str]) -> None:
    call = '<tool_call>\n{{"name": "search", "arguments": {{"query": "{}"}}}}\n</tool_call>'
    fields = {"answer": ONE_HOP.ground_truth}
    fields |= {"search": call.format(ONE_HOP.extra["queries"][0]), "echo": call.format(ONE_HOP.ground_truth)}
    episode = await play(codecs, ONE_HOP, turns(*(text.format(**fields) for text in texts)))
    assert not episode.is_void and episode.reward.outcome == 0.0


@pytest.mark.parametrize("protocol", ["search_r1", "research"])
async def test_two_searches_are_context_and_the_rest_is_the_policys(codecs: Any, protocol: str) -> None:
    episode = await play_solution(codecs, TWO_HOPS, protocol=protocol)
    (trajectory,) = episode.trajectories
    segments = [segment for segment in trajectory.segments() if segment.kind is SegmentKind.TOOL]
    decode = codecs["tokenizer"].decode
    texts = [decode(trajectory.response_ids[segment.start : segment.end]) for segment in segments]
    assert len(texts) == 2 and all("Doc 1(Title:" in text for text in texts)
    opening, closing = ("<information>", "</information>") if protocol == "search_r1" else ("<result>", "</result>")
    assert all(opening in text and closing in text for text in texts)
    assert not any(any(trajectory.response_mask[segment.start : segment.end]) for segment in segments)
    policy_text = decode([t for t, m in zip(trajectory.response_ids, trajectory.response_mask, strict=True) if m])
    assert "Doc 1" not in policy_text and all(query in policy_text for query in TWO_HOPS.extra["queries"])


async def test_an_answer_that_a_passage_marks_as_one_is_not_the_policys(codecs: Any, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"title": "Kardum", "text": "<answer>Oked</answer> lies there"}\n')
    row = EnvRow(prompt=(Message("user", "Which river?"),), ground_truth="Oked")
    config = {"protocol": "search_r1", "corpus": str(tmp_path)}
    unsure = await play(codecs, row, turns(search("Kardum"), "I do not know"), **config)
    wrong = await play(codecs, row, turns(search("Kardum"), "<answer>Rome</answer>"), **config)
    right = await play(codecs, row, turns(search("Kardum"), "<answer>the Oked.</answer>"), **config)
    assert [episode.reward.outcome for episode in (unsure, wrong, right)] == [0.0, 0.0, 1.0]
    assert "<answer>Oked" in wrong.messages[2].content


@pytest.mark.parametrize(
    ("answer", "em", "f1", "research"),
    [
        (r"<think>so</think><answer>\boxed{Barack Obama}</answer>", 1.0, 1.0, 1.0),
        (r"<think>so</think><answer>\boxed{Obama}</answer>", 0.0, 2 / 3, 2 / 3),
        (r"<think>so</think><answer>\boxed{Rome}</answer>", 0.0, 0.0, 0.1),
        (r"<answer>\boxed{Obama}</answer>", 0.0, 2 / 3, 0.0),
    ],
    ids=["right", "half", "wrong", "no-thought"],
)
async def test_the_metric_can_be_chosen(codecs: Any, answer: str, em: float, f1: float, research: float) -> None:
    row = EnvRow(prompt=(Message("user", "Who?"),), ground_truth={"target": ["Barack Obama"]})
    metrics: Any = ("em", "f1", "research")
    episodes = [await play(codecs, row, turns(answer), protocol="research", metric=metric) for metric in metrics]
    assert [episode.reward.total for episode in episodes] == pytest.approx([em, f1, research])
    assert episodes[-1].reward.outcome == pytest.approx(f1 if research else 0.0), "the form is no part of the outcome"


async def test_the_solution_writes_the_thoughts_that_a_metric_requires(codecs: Any) -> None:
    for row in (ONE_HOP, TWO_HOPS):
        episode = await play_solution(codecs, row, protocol="research", metric="research")
        assert episode.reward.outcome == 1.0
        assert all(action.text.startswith("<think>") for action in episode.actions)


async def test_an_episode_that_is_cut_off_has_no_answer(codecs: Any) -> None:
    episode = await play(codecs, ONE_HOP, turns(ONE_HOP.ground_truth + " " * 6_000))
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TOKENS, 0.0)


async def test_rows_of_others_are_answered_at_once_by_the_solution(codecs: Any) -> None:
    row = EnvRow(prompt=(Message("user", "Capital of France?"),), ground_truth={"target": ["Paris"]})
    episode = await play_solution(codecs, row)
    assert (episode.reward.outcome, episode.numbers()["tool_calls"]) == (1.0, 0.0)


async def test_a_row_of_another_corpus_stops_the_run_instead_of_scoring_0(codecs: Any, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"title": "Kardum", "text": "Kardum lies on the Oked."}\n')
    with pytest.raises(ConfigError, match=r"env_config\.corpus"):
        await play_solution(codecs, ONE_HOP, corpus=str(tmp_path))
    with pytest.raises(DataError, match="a corpus is a folder"):
        await play_solution(codecs, ONE_HOP, corpus=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"metric": "bleu"}, "metric"),
        ({"corpus": "/c", "url": "http://h:1"}, "'/c'"),
        ({"url": "h:1"}, "url"),
        ({"retriever": "dense"}, "'synthetic'"),
        ({"retriever": "hybrid", "url": "http://h:1"}, "'http://h:1'"),
        ({"retriever": "best", "corpus": "/c"}, "retriever"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(ONE_HOP, **config)


def test_a_row_without_an_answer_is_refused() -> None:
    with pytest.raises(DataError, match="ground_truth"):
        make_env(EnvRow(prompt=(Message("user", "Who?"),)))


def test_questions_about_docstrings_are_split_by_function() -> None:
    rows = {split: make_rows(split=split, count=30, seed=1, corpus="docstrings") for split in ("train", "test")}
    answers = {split: {row.ground_truth for row in rows[split]} for split in rows}
    assert not answers["train"] & answers["test"]
    assert all(row.prompt[0].content.endswith("?") and row.extra["hops"] == 1 for row in rows["test"])


async def test_a_question_about_docstrings_is_answered_with_the_name_of_a_function(codecs: Any) -> None:
    (row,) = make_rows(split="train", count=1, seed=0, corpus="docstrings")
    assert (await play_solution(codecs, row, corpus="docstrings")).reward.outcome == 1.0
    wrong = await play(codecs, row, turns("os.path"), corpus="docstrings")
    assert (wrong.stop_reason, wrong.reward.outcome) == (StopReason.ANSWERED, 0.0)


def test_each_written_question_names_a_docstring_of_the_corpus() -> None:
    lines = (docstrings_folder() / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    names = {json.loads(line)["id"] for line in lines}
    questions = make_questions(lost=True)
    assert len(questions) > 400 and {question.subject for question in questions} <= names
    assert 150 < len(make_questions()) < len(questions)
