"""`data make`: what passes its check is written once, the rest is reported; work is not repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from maker_runs import model, rows, run
from samples import logged, write_evaluation

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, Reward, StopReason
from verl_agentic.data.makers import set_questions
from verl_agentic.data.making import set_algebra as algebra
from verl_agentic.data.making.make_data import make_data
from verl_agentic.data.making.maker import Candidate, NoReplyError, load_maker, maker_names
from verl_agentic.data.making.set_algebra import AnyOf, Fact, Facts, Intersection, Named, Projection, fault, solve
from verl_agentic.episode.collect import AMPLE_LIMITS, run_episodes, scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.stored_samples import Split, StoredSample
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.files.rows import read_rows
from verl_agentic.log.reader import write_run
from verl_agentic.rewards.sample import Sample, Turn


@dataclass
class Numbers:
    """A maker of numbers that refuses odd ones."""

    silent: set[int] = field(default_factory=set)
    made: list[int] = field(default_factory=list)

    def make(self, *, seed: int, n: int, model: Any) -> Iterator[Candidate]:
        for number in range(n):
            yield Candidate(key=str(number), record=lambda number=number: self._record(number))

    async def verify(self, record: dict[str, Any]) -> str | None:
        return None if record["number"] % 2 == 0 else f"odd: {record['number']}"

    async def _record(self, number: int) -> dict[str, Any]:
        if number in self.silent:
            raise NoReplyError("gone")
        self.made.append(number)
        return {"question": f"What is {number % 6}?", "number": number}


async def test_only_right_and_new_rows_are_written_and_the_rest_is_reported(tmp_path: Path) -> None:
    report = await make_data(Numbers(), tmp_path / "a.jsonl", seed=0, n=10, settings={})
    assert [row["number"] for row in rows(tmp_path / "a.jsonl")] == [0, 2, 4]
    assert report.rows == 3 and report.dropped == {"odd": 5, "repeats another row (exact)": 2}
    assert report.examples["odd"] == "1: odd: 1"
    write_json_lines([{"question": "what is 4"}], tmp_path / "held_out.jsonl")
    report = await make_data(
        Numbers(), tmp_path / "b.jsonl", seed=0, n=6, settings={}, against=[tmp_path / "held_out.jsonl"]
    )
    assert [row["number"] for row in rows(tmp_path / "b.jsonl")] == [0, 2]


async def test_a_repeated_run_is_not_compared_with_its_own_rows(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    await make_data(Numbers(), out, seed=0, n=10, settings={})
    with pytest.raises(ConfigError, match="would repeat themselves"):
        await make_data(Numbers(), out, seed=0, n=10, settings={}, against=[tmp_path / "." / "a.jsonl"])
    assert len(rows(out)) == 3


async def test_a_repeated_run_makes_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    first = await make_data(Numbers(silent={2, 3}), out, seed=0, n=4, settings={})
    assert (first.rows, first.unfinished) == (1, 2)
    again = Numbers()
    second = await make_data(again, out, seed=0, n=5, settings={})
    assert sorted(again.made) == [2, 3, 4] and (second.rows, second.unfinished) == (3, 0)
    with pytest.raises(ConfigError, match="holds another"):
        await make_data(Numbers(), out, seed=0, n=4, settings={"seed": 1})


def test_makers_refuse_unknown_names_options_and_a_missing_model() -> None:
    assert {"agent_flan", "code_tasks", "plans", "set_questions"} <= set(maker_names())
    for name, options in (("code", {}), ("code_tasks", {"tests": 3}), ("plans", {}), ("agent_flan", {"mix": {"a": 1}})):
        with pytest.raises(ConfigError, match="got"):
            load_maker(name, options)
    with pytest.raises(ConfigError, match="needs a model"):
        list(load_maker("code_tasks", {}).make(seed=0, n=1, model=None))


async def test_agent_flan_has_its_shares_and_negative_targets_hold_no_call(tmp_path: Path) -> None:
    report = await run("agent_flan", tmp_path / "a.jsonl", n=30)
    made = rows(tmp_path / "a.jsonl")
    counts = Counter(row["class"] for row in made)
    assert report.rows == len(made) >= 28 and set(report.dropped) <= {"repeats another row (exact)"}
    assert abs(counts["negative"] - 6) <= 1 and abs(counts["format"] - 12) <= 2
    for row in made:
        calls = [message for message in row["messages"] if message.get("tool_calls")]
        assert bool(calls) == (row["class"] == "format") and row["messages"][-1]["role"] == "assistant"
    maker = load_maker("agent_flan", {})
    with_call = next(row for row in made if row["class"] == "format")
    assert "with a call" in str(await maker.verify({**with_call, "class": "negative"}))
    assert "does not fit" in str(await maker.verify({**with_call, "tools": []}))
    dialogue = next(row for row in made if row["class"] == "dialogue")
    assert "does not fit" in str(await maker.verify({**dialogue, "tools": []}))


async def test_reworded_requests_keep_their_values(tmp_path: Path) -> None:
    kept = await run("agent_flan", tmp_path / "a.jsonl", n=5, chat=model(lambda text: f"Please: {text}"), reword=True)
    lost = await run("agent_flan", tmp_path / "b.jsonl", n=5, chat=model(lambda text: "Do it."), reword=True)
    assert kept.rows == 5 and lost.dropped["a value is lost in other words"] >= 3


def task(solution: str = "return a + b", count: int = 5, **changes: Any) -> dict[str, Any]:
    inputs = [[number, number + 1] for number in range(count)]
    return {
        "question": "Write add(a, b).",
        "solution": f"def add(a, b):\n    {solution}\n",
        "inputs": inputs,
        "outputs": [sum(pair) for pair in inputs],
        "fn_name": "add",
        **changes,
    }


_ASSERTS = "from solution import add\n\ndef test_add():\n" + "".join(
    f"    assert add({n}, 1) == {n + 1}\n" for n in range(5)
)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (task(), None),
        ({"question": "Q", "solution": task()["solution"], "test": _ASSERTS}, None),
        ({"question": "Q", "solutions": json.dumps([task()["solution"]]), "input_output": json.dumps(task())}, None),
        (task(count=4), "too few tests"),
        (task(inputs=[[1, 2]] * 5, outputs=[3] * 5), "too few tests"),
        (task("return a - b"), "the reference fails"),
        (task("while True: pass"), "the reference is too slow"),
        (task("return 0", outputs=[0] * 5), "a constant passes"),
        ({"question": "Q", "solution": "x = 1", "test": "def test_a(): ..."}, "no assertions of one function"),
        ({"question": "Q"}, "no question or no reference"),
    ],
)
async def test_code_tasks_need_tests_and_a_reference_that_passes(
    tmp_path: Path, source: dict[str, Any], reason: str | None
) -> None:
    write_json_lines([source], tmp_path / "source.jsonl")
    report = await run("code_tasks", tmp_path / "a.jsonl", n=9, source=str(tmp_path / "source.jsonl"), test_s=1.0)
    assert list(report.dropped) == ([reason] if reason else [])
    assert report.rows == (reason is None)


@pytest.mark.parametrize("form", ["```json\n{}\n```", "<think>\n```json\n[]\n```\n</think>\n{}", "Here: {}"])
async def test_a_task_may_have_latex_that_is_not_escaped(tmp_path: Path, form: str) -> None:
    written = json.dumps({**task(), "question": "Add $a \\cdot b$."}).replace("\\\\", "\\")
    assert "a \\cdot b" in written
    report = await run("code_tasks", tmp_path / "a.jsonl", n=1, chat=model(lambda text: form.replace("{}", written)))
    assert (report.rows, report.dropped) == (1, {})
    assert rows(tmp_path / "a.jsonl")[0]["prompt"][-1]["content"] == "Add $a \\cdot b$."


async def test_a_model_writes_code_tasks_and_copies_are_dropped(tmp_path: Path) -> None:
    chat = model(lambda text: f"Here it is:\n```json\n{json.dumps(task())}\n```" if "number 0 " in text else "no")
    report = await run("code_tasks", tmp_path / "a.jsonl", n=2, chat=chat)
    assert report.rows == 1 and report.dropped == {"the reply is not JSON": 1}
    copy = await run("code_tasks", tmp_path / "b.jsonl", n=1, chat=chat, against=[tmp_path / "a.jsonl"])
    assert copy.rows == 0 and list(copy.dropped) == ["repeats another row (exact)"]


def make_samples(*trajectories: tuple[str, list[str], float], split: Split = "val") -> list[StoredSample]:
    """Returns trajectories of one group, each with a prompt, the texts of its turns, and an outcome."""
    samples = []
    for session, (prompt, texts, outcome) in enumerate(trajectories):
        turns = tuple(
            Turn(index=n, text=text, content=text, observations=(f"saw {text}",) if n < len(texts) - 1 else ())
            for n, text in enumerate(texts)
        )
        sample = Sample(
            id=f"s{session}",
            prompt=(Message("user", prompt),),
            turns=turns,
            final_answer=texts[-1],
            stop_reason=StopReason.ANSWERED,
            env=Reward(outcome),
        )
        samples.append(StoredSample(group="g", session=session, step=1, split=split, sample=sample))
    return samples


def store(folder: Path, *trajectories: tuple[str, list[str], float]) -> None:
    write_evaluation(folder, *make_samples(*trajectories))


async def test_each_step_of_a_trajectory_becomes_a_choice_and_the_outcome_is_appended(tmp_path: Path) -> None:
    store(tmp_path / "run", ("Q", ["look", "open", "5"], 1.0), ("Q", ["search", "6"], 0.0), ("Q", ["look", "7"], 0.0))
    proposals = iter(f"proposal {number}" for number in range(99))
    chat = model(lambda text: next(proposals))
    report = await run("decisions", tmp_path / "a.jsonl", n=3, chat=chat, run=str(tmp_path / "run"), alternatives=2)
    first, second, third = rows(tmp_path / "a.jsonl")
    assert report.rows == 3
    for row, taken in ((first, ["look", "open", "5"]), (second, ["search", "6"]), (third, ["look", "7"])):
        assert [item["options"][item["original"]] for item in row["items"]] == taken
        assert all(len(set(item["options"])) == 3 for item in row["items"])
        said = [message["content"] for message in row["messages"]]
        assert said[1:-2:2] == [f"I will choose option {item['original'] + 1}." for item in row["items"]]
        shown = [text.partition("Step ")[2] for text in said[0:-2:2]]
        assert all(
            f"Option {place}: {option}" in text
            for text, item in zip(shown, row["items"], strict=True)
            for place, option in enumerate(item["options"], start=1)
        )
        assert said[2].startswith(f"saw {taken[0]}\n"), "the environment's output comes after the choice"
        assert said[-1] == f"My decision is {'correct' if taken[-1] == '5' else 'incorrect'}."
    assert "search" in first["items"][0]["options"], "a sibling's step in the same state is an alternative"
    assert "7" in first["items"][1]["options"] and "open" in third["items"][1]["options"]
    assert not {"open", "7"} & {*second["items"][1]["options"]}, "its state is another one"
    assert len({item["original"] for row in (first, second, third) for item in row["items"]}) > 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "too few alternatives"),
        ("  LOOK ", "the model repeats a step"),
        ("look <tool_response>7</tool_response>", "an option has the output of a tool"),
        ("look <interpreter>7</interpreter>", "an option has the output of a tool"),
        ("look <output>7</output>", "an option has the output of a tool"),
    ],
)
async def test_unfit_alternatives_are_reported(tmp_path: Path, answer: str | None, reason: str) -> None:
    store(tmp_path / "run", ("Q", ["look"], 1.0))
    chat = None if answer is None else model(lambda text: answer)
    options = {"run": str(tmp_path / "run"), "alternatives": 1}
    report = await run("decisions", tmp_path / "a.jsonl", n=1, chat=chat, **options)
    assert report.dropped == {reason: 1}


async def test_held_out_trajectories_of_a_run_make_no_decisions(tmp_path: Path) -> None:
    trained = make_samples(("Trained?", ["look"], 1.0), ("Trained?", ["search"], 0.0), split="train")
    held_out = make_samples(("Held out?", ["look"], 1.0), ("Held out?", ["search"], 0.0))
    write_run(tmp_path / "run", trajectories=logged(*held_out, *trained))
    write_evaluation(tmp_path / "run" / "evaluation", *held_out)
    options = {"run": str(tmp_path / "run"), "alternatives": 1}
    report = await run("decisions", tmp_path / "a.jsonl", n=9, **options)
    assert report.rows == 2 and {row["question"] for row in rows(tmp_path / "a.jsonl")} == {"Trained?"}


async def test_a_conversation_on_a_held_out_question_is_dropped(tmp_path: Path) -> None:
    """Its prompt has other words, too few for a span, or so often that they are common."""
    questions = [
        "Who wrote the play?",
        "Which of the two bridges over the wide river was built by the older one of the",
    ]
    for name, columns in (("question", "question"), ("prompt", "prompt")):
        held_out = [
            {columns: text if name == "question" else [{"role": "user", "content": text}]} for text in questions
        ]
        write_json_lines(held_out, tmp_path / f"{name}.jsonl")
    asked = [*questions, "Who built it?"]
    write_json_lines([{"question": text} for text in asked], tmp_path / "q.jsonl")
    plans = iter(f"1. Look at {number}." for number in range(999))
    chat = model(lambda text: next(plans))
    for name in ("question", "prompt"):
        report = await run(
            "planning_actions",
            tmp_path / f"{name}-plans.jsonl",
            n=99,
            chat=chat,
            against=[tmp_path / f"{name}.jsonl"],
            questions=str(tmp_path / "q.jsonl"),
            plans=12,
        )
        assert report.dropped == {"repeats another row (exact)": 24}
        assert {row["question"] for row in rows(tmp_path / f"{name}-plans.jsonl")} == {"Who built it?"}
        assert [path.name for path in tmp_path.glob("*.questions.jsonl")] == []


_FACTS = Facts(
    [
        Fact(subject=subject, relation=relation, object=value)
        for subject, relation, value in (
            ("Ann", "born", "Rome"), ("Bob", "born", "Rome"), ("Cid", "born", "Oslo"),
            ("Ann", "plays", "harp"), ("Bob", "plays", "drum"), ("Cid", "plays", "harp"),
            ("Book", "author", "Ann"),
        )
    ]
)  # fmt: skip


def has(relation: str, value: str) -> Projection:
    return Projection(relation=relation, of=Named(name=value), is_forward=False)


def test_projections_intersections_and_unions_are_sets() -> None:
    assert solve(_FACTS, has("born", "Rome")) == {"Ann", "Bob"}
    both = (has("born", "Rome"), has("plays", "harp"))
    assert solve(_FACTS, Intersection(parts=both)) == {"Ann"}
    assert solve(_FACTS, AnyOf(parts=both)) == {"Ann", "Bob", "Cid"}
    forward = Projection(relation="author", of=Named(name="Book"), is_forward=True)
    assert solve(_FACTS, forward) == {"Ann"}
    assert solve(_FACTS, Projection(relation="born", of=forward, is_forward=True)) == {"Rome"}


def test_every_constraint_of_a_question_must_matter() -> None:
    rome, harp, oslo = has("born", "Rome"), has("plays", "harp"), has("born", "Oslo")
    author = Projection(relation="author", of=Named(name="Book"), is_forward=True)
    assert fault(_FACTS, Intersection(parts=(rome, harp))) is None
    assert fault(_FACTS, rome) == "not one answer: ['Ann', 'Bob']"
    assert fault(_FACTS, Intersection(parts=(oslo, harp))) == "a constraint does not matter"
    assert fault(_FACTS, Intersection(parts=(author, rome))) == "a constraint does not matter"
    shortcut = Projection(relation="born", of=Intersection(parts=(author, harp)), is_forward=True)
    assert fault(_FACTS, shortcut) == "a constraint does not matter", "at every depth"
    assert fault(_FACTS, Named(name="Ann")) == "the answer is named: ['Ann']"
    assert len(list(algebra.without_one(Intersection(parts=(rome, harp))))) == 2


async def test_set_questions_of_the_world_are_unique_and_expanded(tmp_path: Path) -> None:
    report = await run("set_questions", tmp_path / "a.jsonl", n=6, layers=1)
    made = rows(tmp_path / "a.jsonl")
    assert report.rows == len(made) >= 5
    facts = set_questions._load_world("").facts
    for row in made:
        query = set_questions.from_json(json.loads(row["extra_info"]["query"]))
        assert solve(facts, query) == {row["reward_model"]["ground_truth"]}
    wrong = {**made[0], "prompt": [Message("user", made[0]["reward_model"]["ground_truth"]).to_dict()]}
    assert "the answer is shown" in str(await load_maker("set_questions", {}).verify(wrong))


async def test_the_solution_of_a_set_question_finds_the_answer_in_browse(tmp_path: Path, tiny_chat: Any) -> None:
    await run("set_questions", tmp_path / "a.jsonl", n=6, layers=2)
    questions, package = read_rows(tmp_path / "a.jsonl"), load_env_package("browse")
    assert package.gold is not None
    solutions = [package.gold(row) for row in questions]
    tokenizer, codec = tiny_chat
    episodes = await run_episodes(
        questions,
        make_env=package.make_env,
        setup_for=lambda index, row: scripted(solutions[index], codec=codec, tokenizer=tokenizer, limits=AMPLE_LIMITS),
    )
    facts, num_dropped = set_questions._load_world("").facts, 0
    for row, episode in zip(questions, episodes, strict=True):
        assert episode.reward.outcome == 1 and episode.stop_reason is StopReason.ANSWERED
        assert not any(message.is_error for message in episode.messages), "every page exists"
        shown = "\n".join(message.content for message in row.prompt)
        for action, message in zip(episode.actions[:-1], episode.messages[len(row.prompt) + 1 :: 2], strict=True):
            (call,) = action.tool_calls
            assert call.name == "search" or call.arguments["title"] in shown, "a page was shown before it is opened"
            shown += message.content
        query = set_questions.from_json(json.loads(row.extra["query"]))
        less = [solve(facts, rest) for rest in algebra.without_one(query)]
        assert all(found != {row.ground_truth} for found in less), "every constraint matters"
        num_dropped += len(less)
    assert num_dropped >= len(questions)
