"""self_play in the loop: proposals are verified, tried and kept, and proposers get the rewards of the papers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.base.env import is_training
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.data.proposer_env import is_complete
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.log.files.parquet import env_row
from verl_agentic.rewards.component import load_component
from verl_agentic.sampling.prompts.task_sets import TaskSet

from .env import make_env
from .gold import gold
from .programs import refusal
from .rows import make_rows

LIMITS = EpisodeLimits(max_response_tokens=4_000, max_context_tokens=9_000, max_turns=2, max_retries=0)
EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
Solver = Callable[[int], str]


def row_of(task: str, role: str, mode: str | None = None) -> EnvRow:
    rows = make_rows(split="test", count=40, seed=0, task=task, role=role)  # type: ignore[arg-type]
    return next(row for row in rows if mode in (None, row.extra.get("mode")))


DEDUCTION, ABDUCTION = row_of("code", "propose", "deduction"), row_of("code", "propose", "abduction")
QUESTION = row_of("math", "propose")
PROGRAM = "def f(x):\n    return x * x"


def proposal(program: str = PROGRAM, arguments: str = "7") -> str:
    return f"Here it is.\n```python\n{program}\n```\n```input\n{arguments}\n```"


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), "chat")
    return {"tokenizer": tokenizer, **codecs}


async def play(
    codecs: dict[str, Any], row: EnvRow, answer: str, solver: Solver = str, *, training: bool = True, **config: Any
) -> Episode:
    """Plays a row; attempt i at a proposed task answers `solver(i)`."""
    is_training.set(training)
    attempts = iter(range(1_000))

    def next_text(messages: Sequence[Message]) -> str:
        return answer if messages[0].content == row.prompt[0].content else solver(next(attempts))

    setup = scripted(next_text, codec=codecs["chat"], tokenizer=codecs["tokenizer"], limits=LIMITS)
    return await run_episode(row, make_env=lambda row: make_env(row, **config), setup=setup, request_id="r")


def reward(name: str, episode: Episode, row: EnvRow) -> float | None:
    component = load_component(name).make({})
    return component.checked(component(to_sample(episode, row, id="r"))).value


@pytest.mark.sample(3)
@pytest.mark.parametrize(("solved", "value"), [(0, 0.0), (1, 0.875), (4, 0.5), (8, 0.0)])  # V-LEARN, azr
async def test_absolute_zeros_proposer_gets_the_vector_for_the_rate_of_eight_attempts(
    codecs: Any, solved: int, value: float
) -> None:
    episode = await play(codecs, DEDUCTION, proposal(), lambda number: "```\n49\n```" if number < solved else "50")
    assert episode.reward.info == {"well_formed": 1.0, "solve_rate": solved / 8} and episode.reward.outcome == 1.0
    assert reward("proposer_absolute_zero", episode, DEDUCTION) == value
    assert episode.numbers()["sub_agents"] == 8.0


async def test_the_attempts_of_the_solver_are_no_training_rows_of_the_proposer(codecs: Any) -> None:
    episode = await play(codecs, DEDUCTION, proposal(), lambda number: "49")
    assert len(episode.trajectories) == 1 and episode.num_side_rows == 0
    (row,) = episode.trajectories
    policy_text = codecs["tokenizer"].decode([t for t, m in zip(row.response_ids, row.response_mask, strict=True) if m])
    assert "x * x" in policy_text


async def test_what_cannot_be_read_costs_1_and_what_is_no_task_a_half(codecs: Any) -> None:
    unreadable = await play(codecs, DEDUCTION, "def f(x): return x")
    assert reward("proposer_absolute_zero", unreadable, DEDUCTION) == -1.0
    no_tasks = {
        "def f(x):\n    return list({'a', 'b', 'c', 'd', 'e', 'f'})": "two runs differ",
        "def f(x):\n    return 1 / 0": "the program failed",
        "def f(x):\n    return lambda: x": "its output is no literal",
        "import random\n\ndef f(x):\n    return random.random()": "imports ['random']",
        "def f(x):\n    return open('/etc/hostname').read()": "uses open",
        "def f(x):\n    return ().__class__": "uses __class__",
        "def g(x):\n    return x": "does not define f",
    }
    for program, reason in no_tasks.items():
        episode = await play(codecs, DEDUCTION, proposal(program))
        assert reward("proposer_absolute_zero", episode, DEDUCTION) == -0.5, program
        assert reason in episode.reward.details["refused"] and not episode.is_void
        assert episode.numbers()["sub_agents"] == 0.0


async def test_a_program_that_never_ends_is_a_wrong_proposal_and_voids_nothing(codecs: Any) -> None:
    program = "def f(x):\n    return f(x) if x else [0] * 10**9"
    episode = await play(codecs, DEDUCTION, proposal(program))
    assert (episode.is_void, episode.reward.outcome) == (False, 0.0)


@pytest.mark.parametrize("row", [DEDUCTION, ABDUCTION, QUESTION], ids=["deduction", "abduction", "question"])
async def test_a_copy_of_the_example_is_no_proposal(codecs: Any, row: EnvRow) -> None:
    prompt = row.prompt[0].content
    copied = prompt.replace("def f", "# my own\ndef f")
    if row is QUESTION:
        question = prompt.partition(": ")[2].partition("\n")[0]
        copied = f"<question>{question}</question> \\boxed{{1}}"
    episode = await play(codecs, row, copied)
    assert episode.reward.outcome == 0.0 and "of the prompt" in episode.reward.details["refused"]


async def test_any_arguments_with_the_wanted_output_solve_an_abduction(codecs: Any) -> None:
    answers = ["7", "-7", "f(7)", "```\n-7\n```", "8", "x", "7, 7", "__import__('os').getpid()"]
    episode = await play(codecs, ABDUCTION, proposal(), lambda number: answers[number])
    assert episode.reward.info["solve_rate"] == 0.5


async def test_the_most_common_answer_labels_a_question_and_its_share_is_the_rate(codecs: Any, tmp_path: Path) -> None:
    answers = [r"\boxed{1/2}", r"\boxed{0.5}", r"so \boxed{3}", "no idea"]
    proposal = "<question>How much is a half?</question> \\boxed{7}"
    path = tmp_path / "proposals.jsonl"
    episode = await play(codecs, QUESTION, proposal, lambda number: answers[number], attempts=4, proposals=str(path))
    assert episode.reward.info["solve_rate"] == 0.5
    record = json.loads(path.read_text())
    # The attempts run side by side, so either of the equal answers may be the first.
    assert env_row({**record, "raw_prompt": record["prompt"]}).ground_truth in ("1/2", "0.5")
    component = load_component("challenger_r_zero").make({"repetition_weight": 0.0})
    assert [score.value for score in component([to_sample(episode, QUESTION, id="r")])] == [1.0]  # V-LEARN, rzero_paper
    unreadable = await play(codecs, QUESTION, "How much is a half?")
    assert unreadable.reward.info == {"well_formed": 0.0}


@pytest.mark.slow
async def test_a_verified_task_is_written_as_a_row_that_training_takes_and_a_solver_solves(
    codecs: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "proposals.jsonl"
    for row, solved in ((DEDUCTION, 4), (DEDUCTION, 4), (ABDUCTION, 4), (DEDUCTION, 0)):
        program = PROGRAM if solved else "def f(x):\n    return x"
        right = "49" if row is DEDUCTION else "7"
        answers = [right] * solved + ["0"] * (8 - solved)
        await play(codecs, row, proposal(program), answers.__getitem__, proposals=str(path), keep=[0.1, 0.9])
    tasks = TaskSet()
    proposals = [tasks.propose(json.loads(line), check=is_complete) for line in path.read_text().splitlines()]
    assert [result.reason for result in proposals] == ["", "proposed before", ""]  # the unsolved one is not kept
    for record, right in zip(tasks.rows, ["49", "-7"], strict=True):
        assert set(record) == {"data_source", "prompt", "reward_model", "extra_info", "agent_name"}
        row = env_row({**record, "raw_prompt": record["prompt"]})
        assert (row.extra["role"], row.data_source) == ("solve", "self_play_code")
        solved = [(await play(codecs, row, answer)).reward.outcome for answer in (right, "50")]
        assert solved == [1.0, 0.0]


async def test_no_task_is_kept_outside_of_training(codecs: Any, tmp_path: Path) -> None:
    path = tmp_path / "proposals.jsonl"
    episode = await play(codecs, DEDUCTION, proposal(), lambda number: "49", training=False, proposals=str(path))
    assert episode.reward.info["solve_rate"] == 1.0 and not path.exists()


def test_a_line_without_a_ground_truth_does_not_join_the_tasks() -> None:
    record = {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": None}, "extra_info": {}}
    assert not is_complete(record)
    with pytest.raises(DataError, match="'reward_model'"):
        is_complete({"prompt": record["prompt"]})


@pytest.mark.sample(7)
@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row.extra["task_id"])
async def test_the_solution_of_every_example_counts(codecs: Any, row: EnvRow) -> None:
    solution, write = gold(row), codecs["chat"].render_action
    setup = scripted(
        lambda messages: write(solution(messages)), codec=codecs["chat"], tokenizer=codecs["tokenizer"], limits=LIMITS
    )
    episode = await run_episode(row, make_env=make_env, setup=setup, request_id="r")
    assert episode.reward.outcome == 1.0
    assert episode.reward.info.get("solve_rate", 1.0) == 1.0


def test_only_modules_that_compute_are_allowed() -> None:
    assert refusal("import math\nfrom collections import Counter\n\ndef f(x):\n    return math.gcd(x, 6)") == ""
    assert "imports" in refusal("from os import path\n\ndef f(x):\n    return 1")


@pytest.mark.parametrize(("config", "message"), [({"attempts": 0}, "attempts"), ({"keep": [0.8, 0.3]}, "keep")])
def test_options_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(DEDUCTION, **config)
    with pytest.raises(DataError, match=r"got \(None, None\)"):
        make_env(EnvRow(prompt=(Message("user", "x"),)))
    with pytest.raises(ConfigError, match="task"):
        make_rows(split="test", count=1, seed=0, task="chess")
