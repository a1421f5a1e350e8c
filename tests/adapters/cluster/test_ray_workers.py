"""Jobs and commands on a Ray cluster of three nodes, whose workers, node and driver die."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from patience import PATIENCE_S
from run_logs import log_row
from samples import sample, turn
from sandbox_jobs import last_object
from services import answering

from verl_agentic.cli import main
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.reader import write_run
from verl_agentic.rewards.sample_row import to_columns
from verl_agentic.swe.sample_store import sample_store

_SCRIPT = Path(__file__).parents[1] / "cluster_jobs.py"
_TIMES = ("time", "spans", "turns", "numbers")
_AUDIT_TIMES = re.compile(r'"(median|p95)_s": [^,}]+')
_EPISODES = 40

app = FastAPI()
held = {"after": 10**9, "asked": 0}
keys: list[str] = []


@app.post("/hold")
async def hold(after: int) -> None:
    """Lets so many requests through, and the others wait for another call of this."""
    held.update(after=after, asked=0)


@app.get("/v1/models")
async def models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "still", "object": "model"}]}


@app.post("/v1/chat/completions")
async def complete(request: Request) -> dict[str, Any]:
    """Answers with a number that depends on the question only."""
    question = str((await request.json())["messages"][-1]["content"])
    keys.append(request.headers.get("authorization", ""))
    held["asked"] += 1
    while held["asked"] > held["after"]:
        await asyncio.sleep(0.05)
    answer = {"role": "assistant", "content": rf"\boxed{{{len(question)}}}"}
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": len(question), "completion_tokens": 5}}


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in _TIMES} for (row,) in read_episodes(folder).values()]


def other_commands(folder: Path, url: str) -> dict[str, list[str]]:
    """Returns commands that write to the folder `OUT`."""
    write_json_lines([{"question": f"Who built the {n} bridge?"} for n in ("old", "tall", "red")], folder / "q.jsonl")
    make = ["data", "make", "planning_actions", "--option", f"questions={folder / 'q.jsonl'}", "--json"]
    make += ["--option", "plans=2"]
    make += ["--url", f"{url}/v1", "--model", "still", "--api-key-env", "MODEL_KEY", "--out", "OUT/plans.jsonl"]
    log = [log_row(number, [([4], [5]), ([6 + number], [])], acc=float(number % 2)) for number in range(8)]
    for number, row in enumerate(log):
        row |= to_columns(sample([turn("look", observations=["seen"]), turn(f"answer {number}")], id=f"t/{number}"))
    (folder / "critic.py").write_text("def critic(messages, text):\n    return len(messages) + len(text) / 16\n")
    export = ["data", "export", str(write_run(folder / "run", trajectories=log)), "--as", "steps"]
    export += ["--continuations", "1", "--critic", f"{folder / 'critic.py'}:critic", "--out", "OUT/steps.jsonl"]
    (folder / "rubric.yaml").write_text("components: [{use: math}]\n")
    audit = ["reward", "audit", str(folder / "here"), "--rubric", str(folder / "rubric.yaml"), "--json", "--limit", "4"]
    return {"make": make, "export": export, "audit": audit}


def with_out(command: list[str], out: Path) -> list[str]:
    return [word.replace("OUT", str(out)) for word in command]


def result_of(printed: tuple[int, str], out: Path) -> Any:
    """Returns exit code, output without times and paths, and written rows."""
    code, text = printed
    rows = [path.read_text() for path in sorted(out.glob("*s.jsonl"))]
    return code, _AUDIT_TIMES.sub("", text).replace(str(out), "OUT"), rows


def run_here(command: list[str]) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        return main(command), printed.getvalue()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the observations of all jobs, and the results of commands on the cluster and in this process."""
    out, folder = tmp_path_factory.mktemp("evaluation"), tempfile.mkdtemp(prefix="ray_", dir="/tmp")
    with answering(app) as service:
        command = ["evaluate", "--env", "python_math", "--endpoint", f"{service.url}/v1", "--model", "still"]
        command += ["--count", str(_EPISODES), "--concurrency", "4", "--json", "--out"]
        assert main([*command, str(out / "here")]) == 0
        others = other_commands(out, service.url)
        places = {(name, place): out / f"{name}-{place}" for name in others for place in ("here", "there")}
        for place in places.values():
            place.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MODEL_KEY", "sesame")
            here = {name: run_here(with_out(words, places[name, "here"])) for name, words in others.items()}
        check = ["swe", "check", str(sample_store().path), "--runs", "1", "--json"]
        commands = {
            "evaluate": [*command, str(out / "there")],
            "check": [*check, "--id", "quill-01", "--id", "quill-02"],
            **{name: with_out(words, places[name, "there"]) for name, words in others.items()},
        }
        environment = {**os.environ, "COMMANDS": json.dumps(commands)}
        done = subprocess.run([sys.executable, str(_SCRIPT), folder], env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    found = last_object(done.stdout)
    results = {(n, p): result_of((here if p == "here" else found)[n], folder) for (n, p), folder in places.items()}
    return {**found, "results": results, "here": episodes(out / "here"), "there": episodes(out / "there")}


@pytest.mark.slow
def test_jobs_run_on_all_nodes_and_give_their_results(seen: dict[str, Any]) -> None:
    assert seen["squares"] == [number**2 for number in range(30)] and seen["nodes"] == 3


@pytest.mark.slow
def test_a_job_whose_worker_dies_runs_again(seen: dict[str, Any]) -> None:
    assert seen["after a death"] == [1, *(number**2 for number in range(12))]


@pytest.mark.slow
def test_a_job_that_kills_its_workers_fails_alone(seen: dict[str, Any]) -> None:
    assert seen["always dies"].startswith("EnvError: the job ended 3 workers") and seen["runs"] == 3
    assert seen["beside it"] == [number**2 for number in range(12)]


@pytest.mark.slow
def test_jobs_of_a_lost_node_run_on_the_others(seen: dict[str, Any]) -> None:
    assert seen["after a lost node"] == [number**2 for number in range(60)]


@pytest.mark.slow
def test_errors_of_a_job_reach_its_caller_with_their_type(seen: dict[str, Any]) -> None:
    assert seen["errors"] == [
        "DataError: row 7 has no prompt",
        "EnvError: the job failed, got ZeroDivisionError: a fault of the code",
    ]


@pytest.mark.slow
def test_workers_are_closed_and_a_wrong_start_is_told(seen: dict[str, Any]) -> None:
    assert 1 <= seen["closed"] <= 2, "two live at the end, unless one is still starting"
    assert seen["broken"] == "no such model"
    assert "--workers must be from 1 to 2" in seen["many"]


@pytest.mark.slow
def test_an_evaluation_whose_driver_died_has_every_episode_once_as_in_one_process(seen: dict[str, Any]) -> None:
    here, there = ({(row["uid"], row["session"]): row for row in seen[name]} for name in ("here", "there"))
    assert 5 <= seen["evaluation"] < _EPISODES == len(seen["there"]) == len(there)
    assert there == here


@pytest.mark.slow
def test_tasks_are_checked_on_the_cluster(seen: dict[str, Any]) -> None:
    checked = last_object(seen["check"][1])
    assert (checked["tasks"], checked["hold"]) == (2, 2) and checked["test_cpu_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["make", "export", "audit"])
def test_a_command_on_the_cluster_writes_and_prints_what_it_does_in_one_process(
    seen: dict[str, Any], command: str
) -> None:
    code, printed, rows = seen["results"][command, "there"]
    assert (code, printed, rows) == seen["results"][command, "here"]
    assert printed and (command == "audit") == (not rows)


@pytest.mark.slow
def test_workers_get_the_keys_of_the_command(seen: dict[str, Any]) -> None:
    assert seen["make"][0] == 0 and keys.count("Bearer sesame") == 2 * 2 * 6, "2 runs of 6 plans in 2 questions each"
