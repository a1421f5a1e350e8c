"""search_qa beside its loop: the invented world, the corpus of this machine, rows, and a retriever that fails."""

from __future__ import annotations

import asyncio
import codecs
import importlib
import inspect
import json
import socket
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from services import answering

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.data.row_checks import making_problems
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.tools.search.bm25 import Bm25Index, open_index
from verl_agentic.tools.search.search_server import make_app

PACKAGE = load_env_package("search_qa")
make_rows: Any = PACKAGE.make_rows
PURE_MODULES = ("argparse", "configparser", "http.client", "tarfile", "urllib.request", "zipfile")
"""Modules whose classes are not replaced by ones from C when the module has been read."""
FIRST = ("Lepin", "Letfim", "Elud")
"""The first person of the invented world, where they live, and the river there."""


def part(name: str) -> ModuleType:
    """Returns a module of the environment's package."""
    return sys.modules[f"{PACKAGE.make_env.__module__.rpartition('.')[0]}.{name}"]


@pytest.fixture(scope="module")
def machine_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of what is documented on this machine."""
    folder = tmp_path_factory.mktemp("corpora") / "machine"
    make_rows(split="train", count=1, seed=0, corpus=str(folder), build=True)
    return folder


# The invented world.


@pytest.mark.slow
def test_questions_about_the_world_have_their_way_and_no_shorter_one() -> None:
    synthetic, question = part("synthetic"), part("question")
    index = Bm25Index.from_passages(synthetic.make_passages())
    questions = synthetic.make_questions()
    assert len(questions) > 6_000 and len({q.id for q in questions}) == len(questions)
    for top_k in (1, 3):
        assert all(question.is_answerable(q, index, top_k=top_k) for q in questions[::29])


def test_a_question_is_dropped_when_its_way_is_broken_or_not_needed() -> None:
    synthetic, question = part("synthetic"), part("question")
    index = Bm25Index.from_passages(synthetic.make_passages())
    river = next(q for q in synthetic.make_questions() if q.kind == "river")
    first, second = river.hops

    def is_answerable(**changes: Any) -> bool:
        return question.is_answerable(question.Question(**{**river.__dict__, **changes}), index)

    assert is_answerable()
    assert not is_answerable(hops=(first,))  # the answer is not there yet
    assert not is_answerable(hops=(second, second))  # the first search shows it already
    assert not is_answerable(hops=(first, question.Hop(query=first.query, passage_id=second.passage_id)))  # not found
    assert not is_answerable(hops=(question.Hop(query=first.query, passage_id="elsewhere"), second))
    assert not is_answerable(text=f"Is it {river.answers[0].upper()}?")
    assert not is_answerable(answers=("Nowhere",))


def test_the_world_is_the_same_everywhere() -> None:
    world = part("synthetic").make_world()
    people, towns = list(world.home), list(world.river)
    assert (len(people), len(towns), len(set(world.river.values()))) == (4800, 400, 400)
    assert set(Counter(world.home.values()).values()) == {12} and set(world.home.values()) == set(towns)
    assert set(world.teacher.values()) == set(people)
    # Written down once: another generator or another order would make other rows of the same arguments.
    assert (people[0], world.home[people[0]], world.river[world.home[people[0]]]) == FIRST
    assert not set(map(str.lower, people)) & {"lives", "river", "teacher", "town"}


@pytest.mark.slow
def test_rows_are_repeatable_different_and_train_shares_nobody_with_test() -> None:
    assert making_problems(make_rows, 100) == []
    rows = {split: make_rows(split=split, count=200, seed=1) for split in ("train", "test")}
    asked = {split: {row.extra["queries"][0] for row in made} for split, made in rows.items()}
    assert not asked["train"] & asked["test"]
    assert [row.extra["hops"] for row in rows["train"][:6]] == [1, 2] * 3
    assert make_rows(split="train", count=9, seed=1) == rows["train"][:9] != make_rows(split="train", count=9, seed=2)


@pytest.mark.parametrize("hops", [1, 2])
def test_the_number_of_hops_can_be_chosen(hops: int) -> None:
    rows = make_rows(split="test", count=50, seed=0, hops=hops)
    assert {(row.extra["hops"], len(row.extra["queries"])) for row in rows} == {(hops, hops)}


def test_more_rows_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match="count"):
        make_rows(split="test", count=1, seed=0, hops=3)


# The corpus of this machine.


@pytest.mark.slow
def test_the_questions_about_this_machine_are_many_and_of_several_kinds(machine_corpus: Path) -> None:
    questions, fingerprint = part("corpus").read_questions(machine_corpus)
    index = open_index(machine_corpus)
    assert index.fingerprint == fingerprint and len(index) > 3_000
    kinds = Counter((q.kind, len(q.hops)) for q in questions)
    assert {("class_module", 1), ("default", 1), ("base_module", 2), ("python_homepage", 1)} <= set(kinds)
    assert all(part("question").is_answerable(q, index) for q in questions)
    answers = Counter((q.kind, q.answers[0]) for q in questions)
    assert max(answers.values()) <= 8  # 2 % of 400: no answer is worth guessing


@pytest.mark.slow
def test_what_the_sources_say_is_what_python_does(machine_corpus: Path) -> None:
    questions = {q.id: q for q in part("corpus").read_questions(machine_corpus)[0]}
    passages = {p.id: p.text for p in _passages(machine_corpus)}
    assert "(default 'strict')" in passages["function:codecs.open"]
    assert inspect.signature(codecs.open).parameters["errors"].default == "strict"
    assert "is derived from TCPServer." in passages["class:http.server.HTTPServer"]
    defined = [q for q in questions.values() if q.kind == "class_module" and q.answers[0] in PURE_MODULES]
    assert len(defined) > 10
    for q in defined:
        assert getattr(importlib.import_module(q.answers[0]), q.subject).__module__ == q.answers[0]


def _passages(folder: Path) -> list[Any]:
    return [passage for _, passage in part("corpus").Corpus(folder).passages()]


@pytest.mark.slow
def test_rows_of_a_folder_are_its_questions_and_belong_to_its_content(machine_corpus: Path) -> None:
    def make(**arguments: Any) -> list[EnvRow]:
        return make_rows(**arguments, corpus=str(machine_corpus))

    assert making_problems(make, 20) == []
    assert {row.extra["corpus"] for row in make(split="test", count=20, seed=0)} == {
        open_index(machine_corpus).fingerprint
    }


@pytest.mark.slow
def test_the_same_machine_gives_the_same_passages(machine_corpus: Path) -> None:
    corpus = part("corpus")
    there = {passage.id: passage for passage in _passages(machine_corpus)}
    docs, packages = corpus.read_standard_library(), [*corpus.read_distributions(), *corpus.read_debian_packages()]
    again = corpus.make_passages(docs, packages)
    assert {passage.id: passage for passage in again} == there and len(again) == len(there)


@pytest.mark.slow
def test_a_folder_without_questions_or_with_other_passages_has_no_rows(tmp_path: Path, machine_corpus: Path) -> None:
    def rows(folder: Path) -> list[EnvRow]:
        return make_rows(split="train", count=1, seed=0, corpus=str(folder))

    with pytest.raises(DataError, match=r"\*\.jsonl"):
        rows(tmp_path / "missing")
    changed = tmp_path / "changed"
    (changed / "questions").mkdir(parents=True)
    for path in (machine_corpus / "questions").iterdir():
        (changed / "questions" / path.name).write_bytes(path.read_bytes())
    (changed / "passages.jsonl").write_text('{"title": "x", "text": "y"}\n')
    with pytest.raises(DataError, match="questions"):
        rows(changed)


@pytest.mark.slow
def test_a_corpus_is_not_built_over_another_and_a_failed_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = part("corpus")
    with pytest.raises(ConfigError, match="folder"):
        corpus.build_corpus(tmp_path)
    monkeypatch.setattr(corpus, "read_standard_library", list)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ImportError, match="verl-agentic"):
        corpus.build_corpus(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_classes_methods_and_defaults_are_read_from_sources_without_importing_them() -> None:
    source = b'''"""A module."""
import elsewhere
raise RuntimeError("imported")
class Base(elsewhere.Far, Generic[T]):
    """Does it."""
    def run(self, fast, *, mode="quick", limit: int = 5): "Runs."
    def _hidden(self, x="no"): ...
class _Private: ...
async def go(a, /, b=2, *rest, c): ...
'''
    docs = part("python_docs")
    module, base, run, go = docs.read_module("mod", source)
    assert module.passage().text == "The Python module mod. A module."
    assert base.passage().text == "The Python class Base is defined in the module mod. It is derived from Far. Does it."
    assert run.passage().text == (
        "The Python method Base.run of the module mod. Its parameters are fast, mode (default 'quick'), "
        "limit (default 5). Runs."
    )
    assert (go.parameters, go.defaults) == (("a", "b", "c"), {"b": "2"})


def test_debian_packages_are_read_from_dpkgs_status(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: zed\nStatus: install ok installed\nDepends: libc6 (>= 2.3), a | b, zed-data:any [amd64]\n"
        "Pre-Depends: first\nProvides: editor (= 1)\nHomepage: https://zed.example\n"
        "Description: an editor\n It edits.\n .\n And more.\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nDescription: was here\n\n"
        "Package: alpha\nStatus: install ok installed\nDescription: first by name\n"
    )
    alpha, zed = part("packages").read_debian_packages(status)
    assert alpha.name == "alpha" and zed.needs == ("first", "libc6", "a", "zed-data")
    facts, more = zed.passages()
    assert facts.text == (
        "The Debian package zed: an editor. Its homepage is https://zed.example . "
        "It depends on first, libc6, a, zed-data. It provides editor."
    )
    assert more.text == "It edits. And more."
    assert part("packages").read_debian_packages(tmp_path / "another system") == []


# Many episodes, and a retriever that fails.


def call(query: object) -> Action:
    return Action(turn=0, text="", content="", tool_calls=(ToolCall("search", {"query": query}),))


async def test_hundreds_of_episodes_search_at_once_and_each_gets_its_own_passages() -> None:
    rows = make_rows(split="train", count=300, seed=5, hops=1)

    async def one(row: EnvRow) -> bool:
        env = PACKAGE.make_env(row)
        await env.start()
        (message,) = (await env.step(call(row.extra["queries"][0]))).messages
        await env.close()
        return row.ground_truth in message.content and row.extra["queries"][0] in message.content

    assert all(await asyncio.gather(*map(one, rows)))


async def test_wrong_arguments_are_answered() -> None:
    env = PACKAGE.make_env(make_rows(split="train", count=1, seed=0)[0])
    observation = await env.step(call(["not", "text"]))
    assert observation.messages[0].content == 'Error: the arguments must be {"query": "<string>"}'
    assert observation.info["call_error/wrong_arguments"] == 1.0


@pytest.mark.sample(1)
@pytest.mark.parametrize("config", [{}, {"url": "http://127.0.0.1:1"}])
def test_a_slow_search_fails_the_environment_before_it_is_told_to_the_policy(config: dict[str, Any]) -> None:
    env: Any = PACKAGE.make_env(make_rows(split="train", count=1, seed=0)[0], deadline_s=7.0, **config)
    (tool,) = env.tools
    assert 7.0 < tool._deadline_s < env._tool_timeout_s / 1.5


async def play(tiny_chat: Any, row: EnvRow, **config: Any) -> Any:
    tokenizer, codec = tiny_chat
    solution = PACKAGE.gold(row) if PACKAGE.gold is not None else None
    assert solution is not None
    policy = ScriptedPolicy(
        lambda messages: codec.render_action(solution(messages)),
        encode=tokenizer.encode,
        end_ids=[tokenizer.eos_token_id],
    )
    limits = EpisodeLimits(max_response_tokens=4_000, max_context_tokens=4_096, max_retries=0)
    return await run_episode(
        row,
        make_env=lambda row: PACKAGE.make_env(row, **config),
        setup=EpisodeSetup(policy=policy, codec=codec, tokenizer=tokenizer, limits=limits),
        request_id="r",
    )


async def test_a_server_can_be_searched_instead(tiny_chat: Any) -> None:
    with answering(make_app(part("synthetic").synthetic_retriever())) as service:
        rows = make_rows(split="test", count=8, seed=0)
        episodes = await asyncio.gather(*(play(tiny_chat, row, url=service.url) for row in rows))
    assert [episode.reward.outcome for episode in episodes] == [1.0] * 8


async def test_a_dead_server_makes_the_episode_void_and_is_never_an_empty_result(tiny_chat: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    row = make_rows(split="test", count=1, seed=0)[0]
    episode = await play(tiny_chat, row, url=url, deadline_s=0.5)
    assert (episode.stop_reason, episode.is_void, episode.error_kind) == (StopReason.INFRA_ERROR, True, "env")
    assert episode.error.startswith("SearchUnavailableError: http://127.0.0.1:")
    assert not any(message.role == "tool" for message in episode.messages)


def test_rows_survive_json() -> None:
    for row in make_rows(split="train", count=4, seed=0):
        assert json.loads(json.dumps(row.extra)) == row.extra and isinstance(row.prompt[0], Message)
