"""Proposers of search_qa: a question counts if the proposer's own documents answer it, and pays by how few solve it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import ConfigError, Episode, EpisodeLimits, Message, run_episode, scripted
from verl_agentic.base.env import is_training
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.log.files.parquet import env_row
from verl_agentic.rewards.component import ABSTAIN, load_component

from .env import make_env
from .proposer import DOCUMENTS
from .rows import make_rows

ROW = next(row for row in make_rows(split="test", count=20, seed=0, role="propose") if len(row.extra["queries"]) == 2)
TARGET = ROW.extra["target"]
LIMITS = EpisodeLimits(max_response_tokens=6_000, max_context_tokens=8_000, max_turns=4, max_retries=0)


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), "search_r1")
    return {"tokenizer": tokenizer, **codecs}


async def propose(
    codecs: dict[str, Any],
    question: str = ROW.extra["question"],
    *,
    solved: int = 0,
    from_documents: str = TARGET,
    queries: Sequence[str] = ROW.extra["queries"],
    **config: Any,
) -> tuple[Episode, list[str]]:
    """Plays the proposer; also returns the prompts that copies of the policy got."""
    prompts: list[str] = []
    is_training.set(True)

    def next_text(messages: Sequence[Message]) -> str:
        first, turn = messages[0].content, sum(m.role == "assistant" for m in messages)
        if first == ROW.prompt[0].content:
            answer = f"<answer><question>{question}</question></answer>"
            return f"<search>{queries[turn]}</search>" if turn < len(queries) else answer
        prompts.append(first)
        if first.startswith(DOCUMENTS):
            return f"<answer>{from_documents}</answer>"
        return f"<answer>{TARGET if sum(p == first for p in prompts) <= solved else 'Rome'}</answer>"

    setup = scripted(next_text, codec=codecs["search_r1"], tokenizer=codecs["tokenizer"], limits=LIMITS)
    episode = await run_episode(ROW, make_env=lambda row: make_env(row, **config), setup=setup, request_id="r")
    return episode, prompts


def reward(episode: Episode) -> Any:
    return load_component("proposer_ssp").make({})(to_sample(episode, ROW, id="r"))


@pytest.mark.parametrize(("solved", "value"), [(0, 1.0), (1, 0.875), (4, 0.5), (8, 0.0)])  # V-LEARN, ssp
async def test_the_proposer_gets_the_vector(codecs: Any, solved: int, value: float) -> None:
    episode, prompts = await propose(codecs, solved=solved, attempts=8)
    assert episode.reward.info == {"well_formed": 1.0, "rag_check": 1.0, "solve_rate": solved / 8}
    assert reward(episode) == value and len(prompts) == 1 + 8


async def test_the_check_shows_the_proposers_documents_among_those_of_other_questions(codecs: Any) -> None:
    _, (check, *_) = await propose(codecs)
    assert check.count('Doc 1(Title: "') == 2 + 4 and TARGET in check
    assert all(f'(Title: "{query}")' in check for query in [*ROW.extra["queries"], *ROW.extra["noise"]])
    assert check.endswith(f"Question: {ROW.extra['question']}")


@pytest.mark.parametrize(
    ("change", "reason", "well_formed"),
    [
        ({"from_documents": "Rome"}, "documents of the searches do not lead", 1.0),
        ({"queries": []}, "nothing was searched for", 1.0),
        ({"question": f"Is it {TARGET}?"}, "contains its answer", 1.0),
        ({"question": ""}, "lacks a question", 0.0),
    ],
    ids=["unanswerable", "no-search", "leak", "empty"],
)
async def test_a_question_that_fails_the_check_is_dropped(
    codecs: Any, change: dict[str, Any], reason: str, well_formed: float, tmp_path: Path
) -> None:
    path = tmp_path / "proposals.jsonl"
    episode, prompts = await propose(codecs, proposals=str(path), **change)
    assert reason in episode.reward.details["refused"] and reward(episode) == ABSTAIN
    assert episode.reward.info == {"well_formed": well_formed, "rag_check": 0.0}
    assert len(prompts) == ("from_documents" in change) and not path.exists()


async def test_a_question_that_passes_becomes_a_row_of_the_solver(codecs: Any, tmp_path: Path) -> None:
    path = tmp_path / "proposals.jsonl"
    await propose(codecs, proposals=str(path))
    record = json.loads(path.read_text())
    row = env_row({**record, "raw_prompt": record["prompt"]})
    assert (row.prompt[0].content, row.ground_truth, row.data_source) == (ROW.extra["question"], TARGET, "search_qa")
    setup = scripted(
        lambda messages: f"<answer>{TARGET}</answer>",
        codec=codecs["search_r1"], tokenizer=codecs["tokenizer"], limits=LIMITS,
    )  # fmt: skip
    assert (await run_episode(row, make_env=make_env, setup=setup, request_id="r")).reward.outcome == 1.0


def test_roles_alternate_and_others_are_refused() -> None:
    sources = [row.data_source for row in make_rows(split="train", count=4, seed=0, role="both")]
    assert sources == ["search_qa_propose", "search_qa"] * 2
    with pytest.raises(ConfigError, match="role"):
        make_rows(split="train", count=1, seed=0, role="judge")  # type: ignore[arg-type]
