"""`verl-agentic reward` on what a quickstart evaluation and a training leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from samples import call, graded, logged, sample, turn, write_evaluation  # pyright: ignore[reportMissingImports]

from verl_agentic.cli import main
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.graders.models.discriminator import Discriminator
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.log.reader import write_run
from verl_agentic.methods.progress_model import load_progress_model
from verl_agentic.rewards.component import load_component

FILE = Path(__file__).parent.parent / "data" / "audited_components.py"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of 4 groups of 4: each has two right answers, and one that the tool alone gave."""
    folder = tmp_path_factory.mktemp("run")
    stored = []
    for name in ("Borib", "Defot", "Lufus", "Razub"):
        for session, answer in enumerate((name, name, "?", "")):
            told = turn("look", call(query=name), observations=[f"the teacher is {name}"])
            subject = sample(
                [told, turn(answer)], ground_truth=name, prompt=f"Who taught {name[::-1]}?", id=f"{name}/{session}"
            )
            score = {"acc": float(answer == name), "score": float(answer == name)}
            stored.append(StoredSample(group=name, session=session, step=1, split="train", sample=subject, score=score))
    return write_run(folder / "rl", trajectories=logged(*stored)).parent


def rubric(folder: Path, *entries: dict, name: str = "rubric.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump({"components": list(entries)}))
    return str(path)


def use(function: str, **options: object) -> dict:
    return {"use": f"{FILE}:{function}", **options}


def test_a_rubric_that_is_right_is_exit_code_0(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rubric(tmp_path, {"use": "exact_match"})
    assert main(["reward", "audit", str(run_dir), "--rubric", path]) == 0
    shown = capsys.readouterr().out
    assert "16 samples in 4 groups" in shown and "no threshold is passed" in shown and "exact_match" in shown
    assert main(["reward", "audit", str(run_dir), "--rubric", path, "--json", "--limit", "4"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and (report["num_samples"], report["terms"][0]["unearned"]["silent"]) == (4, 0.0)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([use("reads_tools")], "reads_tools: silence beside tool output gets up to 1 of the range"),
        ([use("strict"), use("coin", weight=0.2)], "coin: gives different verdicts on "),
        ([use("strict"), use("always", weight=0.2)], "always: never differs inside a group"),
        ([use("strict"), use("broken", weight=0.2)], "broken: fails on 16 of 16 samples"),
    ],
)
def test_a_threshold_that_is_passed_is_exit_code_1_and_the_reason_is_shown(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], entries: list[dict], says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["reward", "audit", str(run_dir), "--rubric", rubric(tmp_path, *entries)]) == 1
    shown = capsys.readouterr().out
    assert says in shown and "no threshold is passed" not in shown


def test_the_thresholds_are_options(run_dir: Path, tmp_path: Path) -> None:
    path = rubric(tmp_path, use("strict"), use("always", weight=0.2))
    assert main(["reward", "audit", str(run_dir), "--rubric", path, "--max-dead", "1"]) == 0
    # 1, 1, 0, 0 and 0.4, 0.4, 0, 0: shares 1 / 1.4 and 0.4 / 1.4 = 28.6 %.
    path = rubric(tmp_path, use("strict"), use("pays_for_words", weight=0.4, kind="shaping"))
    assert main(["reward", "audit", str(run_dir), "--rubric", path, "--max-share", "0.29"]) == 0
    assert main(["reward", "audit", str(run_dir), "--rubric", path, "--max-share", "0.28"]) == 1


def test_the_lab_shows_what_would_have_changed(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rubric(tmp_path, use("strict"), use("pays_for_words", weight=0.4, kind="shaping"))
    page = tmp_path / "lab.html"
    assert main(["reward", "lab", str(run_dir), "--rubric", path, "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    # Rewards 1, 1, 0, 0 become 1.4, 1.4, 0, 0: the same ranks; 0.5 becomes 0.7.
    assert "rank correlation of old and new rewards 1, inside groups 1" in shown
    assert "0.5" in shown and "0.7" in shown and "0 samples change the sign of their advantage" in shown
    assert "<svg" in page.read_text()
    old = rubric(tmp_path, use("never_right"), name="old.yaml")
    arguments = ["--rubric", path, "--old", old, "--estimator", "rloo", "--json"]
    assert main(["reward", "lab", str(run_dir), *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["dropped"]["old"] == 4 and report["dropped"]["new"] == 0 and len(report["dropped"]["only_old"]) == 4
    # Leave-one-out: 1.4 - (1.4 + 0 + 0) / 3.
    assert report["by_group"][0]["samples"][0]["new"]["advantage"] == pytest.approx(1.4 - 1.4 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "val"], "no trajectory matches --split val and --source None; there are ['training (train)']"),
        (["--source", "eval"], "no trajectory matches --split None and --source eval"),
        (["--rubric", "no/such.yaml"], "cannot read the rubric 'no/such.yaml'"),
    ],
)
@pytest.mark.parametrize("command", ["audit", "lab"])
def test_what_cannot_work_is_exit_code_2(
    run_dir: Path, tmp_path: Path, command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rubric(tmp_path, use("strict"))
    assert main(["reward", command, str(run_dir), "--rubric", path, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_folder_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reward", "audit", str(tmp_path), "--rubric", rubric(tmp_path, use("strict"))]) == 2
    assert "no trajectories" in capsys.readouterr().err


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with 8 trajectories of training, 4 of validation and 2 of an evaluation."""

    def stored(kind: str, count: int, **changes: Any) -> list[StoredSample]:
        return [
            StoredSample(
                group=f"{kind}{n // 2}", session=n % 2, step=1, score={"acc": 1.0, "score": 1.0},
                sample=sample([turn("Borib" if n % 2 else "?")], ground_truth="Borib", id=f"{kind}{n // 2}/{n % 2}"),
                **changes,
            )
            for n in range(count)
        ]  # fmt: skip

    rows = [*stored("t", 8, split="train"), *stored("v", 4, split="val")]
    write_run(tmp_path / "rl", trajectories=logged(*rows))
    write_evaluation(tmp_path / "after", *stored("e", 2, split="val"))
    return tmp_path


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("arguments", "used", "left_out"),
    [
        ([], {"training": 8}, {"validation": 4, "evaluation": 2}),
        (["--of", "evaluation"], {"evaluation": 2}, {"training": 8, "validation": 4}),
        (["--of", "validation"], {"validation": 4}, {"training": 8, "evaluation": 2}),
        (["--of", "all"], {"evaluation": 2, "training": 8, "validation": 4}, {}),
        (["--split", "val"], {"validation": 4}, {"evaluation": 2}),
        (["--source", "after"], {"evaluation": 2}, {}),
    ],
)
@pytest.mark.parametrize("command", ["audit", "lab"])
def test_training_validation_and_evaluations_are_not_mixed_unasked(
    mixed: Path, command: str, arguments: list[str], used: dict[str, int], left_out: dict[str, int],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = rubric(mixed, use("strict"))
    main(["reward", command, str(mixed), "--rubric", path, *arguments, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["trajectories"] == {"used": used, "left_out": left_out}
    main(["reward", command, str(mixed), "--rubric", path, *arguments])
    shown = capsys.readouterr().out
    assert all(f"{count} of {kind}" in shown for kind, count in (used | left_out).items())
    assert ("choose with --of" in shown) == bool(left_out)


def test_a_kind_that_the_folder_does_not_have_is_refused(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rubric(tmp_path, use("strict"))
    assert main(["reward", "audit", str(run_dir), "--rubric", path, "--of", "evaluation"]) == 2
    assert "--of evaluation" in capsys.readouterr().err


@pytest.mark.slow
def test_neither_command_imports_verl_or_torch(run_dir: Path, tmp_path: Path) -> None:
    path = rubric(tmp_path, use("strict"), {"use": "efficiency", "weight": 0.1})
    code = (
        "import sys; from verl_agentic.cli import main\n"
        f"for c in ('audit', 'lab'): main(['reward', c, {str(run_dir)!r}, '--rubric', {path!r}, '--json'])\n"
        "print(sorted({'torch', 'verl', 'ray', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_quickstart_evaluation_can_be_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl_agentic.cpu.quickstart import tasks
    from verl_agentic.cpu.quickstart.course import load_course

    course = replace(load_course("quickstart"), num_train=2, num_demos=2)
    tasks.make_model([course], tmp_path / "model", seed=1)
    tasks.make_data(course, tmp_path / "data", tmp_path / "model", 1, 4, lambda done, total: None)
    tasks.evaluate(course, tmp_path, "base", tmp_path / "model", greedy=True, seed=1, advance=lambda done, total: None)
    path = rubric(tmp_path, {"use": "math"}, {"use": "tool_validity", "weight": 0.1})
    # A random model never answers: all parts are dead, and nothing else is wrong.
    assert main(["reward", "audit", str(tmp_path), "--rubric", path, "--max-dead", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["num_samples"], report["num_groups"], report["num_compared"]) == (8, 8, 0)
    gold = report["terms"][0]["gold"]
    assert (gold["form"], gold["family"], gold["by_kind"]["gold"]) == ("boxed", "math", [4, 0])
    assert main(["reward", "lab", str(tmp_path), "--rubric", path, "--source", "greedy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 4


def test_steps_labels_turns_by_what_became_of_the_siblings(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.jsonl"
    assert main(["reward", "steps", str(run_dir), "--out", str(out)]) == 0
    assert "16 labels in 16 rows" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    # All four siblings look first, and two of them are right.
    assert all((row["labels"], row["continuations"], row["completions"]) == ([0.5], [4], ["look"]) for row in rows)
    assert main(["reward", "steps", str(run_dir), "--out", str(out), "--continuations", "2", "--hard"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["labels"] for row in rows) == [[1.0]] * 8 + [[1.0, 1.0]] * 8
    assert main(["reward", "steps", str(run_dir), "--out", str(out), "--continuations", "5"]) == 1


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    """A run whose episodes are all right and talk otherwise."""
    subject = sample([turn("I looked it up: Borib")], ground_truth="Borib", prompt="Who?", id="Borib/0")
    stored = [
        StoredSample(
            group="Borib",
            session=session,
            step=1,
            split="train",
            sample=replace(subject, id=f"Borib/{session}"),
            score={"acc": 1.0, "score": 1.0, "reward/cost": 3.0},
        )
        for session in range(6)
    ]
    return write_run(tmp_path / "experts" / "rl", trajectories=logged(*stored)).parent


def test_front_compares_runs_part_by_part(
    run_dir: Path, experts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reward", "front", str(run_dir), "--against", str(experts), "--parts", "acc,-score", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["means"] == {str(run_dir): {"acc": 0.5, "-score": 0.5}, str(experts): {"acc": 1.0, "-score": 1.0}}
    assert found["front"] == [str(run_dir), str(experts)]
    assert main(["reward", "front", str(run_dir), "--against", str(experts), "--parts", "acc,score", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["front"] == [str(experts)]
    assert main(["reward", "front", str(experts), "--against", str(run_dir), "--parts", "acc"]) == 0
    assert "on the front" in capsys.readouterr().out
    assert main(["reward", "front", str(experts), "--against", str(run_dir), "--parts", "cost"]) == 2
    assert "'cost'" in capsys.readouterr().err


def test_imitate_learns_to_tell_experts_from_the_policy(
    run_dir: Path, experts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "discriminator.json"
    assert main(["reward", "imitate", str(run_dir), "--experts", str(experts), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "6 texts of experts, 16 of the policy" in shown and "in 100.0% of the pairs" in shown
    assert Discriminator.load(out).logit("I looked it up: Razub") > 0 > Discriminator.load(out).logit("look\nRazub")


@pytest.mark.slow
def test_progress_writes_an_estimator_that_the_component_takes(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tiny_model(tmp_path / "model", seed=0)
    command = ["reward", "progress", str(run_dir), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    assert main([*command, "--steps", "20", "--batch", "2", "--lr", "1e-3"]) == 0
    shown = capsys.readouterr().out
    assert "trained on 16 episodes" in shown and "step 20: loss" in shown
    episode = sample([turn("look", call()), turn("Razub")])
    contributions = load_progress_model(str(tmp_path / "out"))(episode)
    assert any(contributions)
    verdict = graded(load_component("progress"), episode, model=str(tmp_path / "out"), beta=0.0, cap=10.0)
    assert list(verdict.turns.values()) == pytest.approx(contributions, abs=1e-5)


_HARMLESS = """
components:
  - {use: env}
  - {use: tool_outcomes, weight: 1.0}
"""


@pytest.mark.slow
def test_policies_without_a_model_are_audited_in_an_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ["reward", "audit", "--env", "text_game", "--count", "4", "--json"]
    assert main(env) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [] and found["solution"]["outcome"] == 1.0 and found["rows"] >= 4
    assert {policy["outcome"] for policy in found["policies"]} == {0.0} and len(found["policies"]) >= 10
    assert found["guesses"]["played"] >= 3 and not found["guesses"]["paid"]
    rubric = tmp_path / "rubric.yaml"
    rubric.write_text(_HARMLESS)
    assert main([*env, "--rubric", str(rubric)]) == 0
    rewards = {policy["name"]: policy["reward"] for policy in json.loads(capsys.readouterr().out)["policies"]}
    assert max(rewards.values()) > 0  # shaping pays calls, and less than the solution
    assert main([*env, "--max-scripted", "-0.5"]) == 1
    for wrong in (["reward", "audit"], [*env, str(tmp_path)], ["reward", "audit", str(tmp_path)]):
        assert main(wrong) == 2


_LENIENT = """
from verl_agentic.base.env import EnvRow
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward


class LenientEnv(ToolEnv):
    def __init__(self, row):
        super().__init__(row, [])

    async def score(self, transcript):
        return Reward(float(transcript.final_answer.startswith(self.row.ground_truth)))


make_env = LenientEnv


def make_rows(*, split, count, seed):
    return [
        EnvRow(prompt=(Message("user", f"Name number {n}."),), ground_truth=f"name{n}x", data_source="names")
        for n in range(count)
    ]


def gold(row):
    return lambda messages: Message("assistant", row.ground_truth)
"""


@pytest.mark.slow
def test_guesses_are_played_by_the_audit_of_an_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lenient").mkdir()
    (tmp_path / "lenient" / "__init__.py").write_text(_LENIENT)
    audit = ["reward", "audit", "--env", str(tmp_path / "lenient"), "--count", "40", "--json"]
    assert main(audit) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["guesses"]["paid"] == ["extended: 20 of 20 rows, such as 'name0x or something else'"]
    assert found["problems"] == ["guess extended: 20 of 20 rows, such as 'name0x or something else'"]
    rubric = tmp_path / "rubric.yaml"
    rubric.write_text("components:\n  - {use: exact_match, kind: outcome}\n")
    assert main([*audit, "--rubric", str(rubric)]) == 0, "the rubric's outcome counts, not the environment's"
