"""`verl-agentic evaluate` against servers on loopback: tokens and messages, taken up again, and what goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from judges import data_of, judging, verdict
from openai_server import Server, choice, refuse, serving
from services import Service, answering
from transformers import AutoModelForCausalLM

from verl_agentic.base.errors import DataError, PolicyError
from verl_agentic.cli import main
from verl_agentic.cpu.inference.request import Generation, SamplingParams
from verl_agentic.cpu.serving.http_server import Served, make_app
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.log.files.rows import write_rows
from verl_agentic.log.reader import write_run
from verl_agentic.log.secrets import WITHHELD
from verl_agentic.observe.viewer import run_view


class Solver:
    """An engine that knows how python_math is solved; it fails at every second question, when it is asked to."""

    max_positions = 4_096

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.asked: list[SamplingParams] = []
        self.is_right: Callable[[int], bool] = lambda product: True
        self.is_down = False

    def stats(self) -> dict[str, float]:
        return {}

    async def generate(self, prompt_ids: Any, params: SamplingParams) -> Generation:
        if self.is_down:
            raise PolicyError("the engine is down")
        self.asked.append(params)
        prompt = self.tokenizer.decode(prompt_ids)
        told = re.findall(r"<tool_response>\n(\d+)\n", prompt)
        asked = re.findall(r"What is (\d+)\*(\d+)", prompt)
        if told:
            product = int(told[-1])
            text = rf"\boxed{{{product if self.is_right(product) else 0}}}<|im_end|>"
        elif asked:
            call = {"name": "python", "arguments": {"code": f"print({'*'.join(asked[-1])})"}}
            text = f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
        else:
            text = "Hi<|im_end|>"
        ids = self.tokenizer.encode(text)[: params.max_tokens]
        return Generation(
            token_ids=ids, log_probs=[-0.25] * len(ids), finish_reason="stop", num_cached_tokens=0, weights_version=0
        )


@pytest.fixture(scope="module")
def solver(tiny_chat: tuple[Any, Any]) -> Solver:
    return Solver(tiny_chat[0])


@pytest.fixture(scope="module")
def service(solver: Solver, tiny_chat: tuple[Any, Any]) -> Iterator[Service]:
    engine: Any = solver
    served = Served(engine=engine, tokenizer=tiny_chat[0], chat=tiny_chat[1], name="tiny", token="sesame")
    with answering(make_app(served)) as running:
        yield running


@pytest.fixture
def evaluate(
    service: Service,
    solver: Solver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., dict[str, Any]]:
    solver.asked, solver.is_right, solver.is_down = [], lambda product: True, False
    monkeypatch.setenv("MY_KEY", "sesame")

    def run(*arguments: str, code: int = 0, endpoint: str = service.url) -> dict[str, Any]:
        given = ["--endpoint", endpoint, "--model", "tiny", "--api-key-env", "MY_KEY", "--retries", "0", "--json"]
        if "--out" not in arguments:
            given += ["--out", str(tmp_path / "out")]
        assert main(["evaluate", "--env", "python_math", *given, *arguments]) == code
        shown = capsys.readouterr()
        return json.loads(shown.out) if code < 2 else {"error": shown.err}

    return run


def records(folder: Path) -> list[Any]:
    """Returns the only row of each episode."""
    return [row for (row,) in read_episodes(folder).values()]


def test_tokens_go_in_and_out_and_the_record_has_them_as_they_were_sampled(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    summary = evaluate("--tokenizer", str(tiny_model), "--count", "3", "--samples", "2", "--temperature", "0.7",
                       "--sampling-seed", "10")  # fmt: skip
    assert (summary["mode"], summary["success"]["mean"], summary["episodes"]) == ("completions", 1.0, 6)
    assert (summary["tool_calls"]["mean"], summary["num_turns"]["mean"]) == (1.0, 2.0)
    assert summary["pass_hat_k"] == {"1": 1.0, "2": 1.0} and summary["token_ids"] == ["exact"]
    assert {params.temperature for params in solver.asked} == {0.7}
    assert {params.seed for params in solver.asked[1:]} == set(range(10, 16)), "every attempt has a seed of its own"
    for row in records(tmp_path / "out"):
        sampled = [i for i, m in zip(row["response_ids"], row["response_mask"], strict=True) if m]
        text = solver.tokenizer.decode(sampled)
        assert text.startswith("<tool_call>\n") and text.endswith("}<|im_end|>")
        assert {p for p, m in zip(row["rollout_log_probs"], row["response_mask"], strict=True) if m} == {-0.25}
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary


def test_messages_do_as_well_and_their_ids_are_exact_with_the_tokenizer_of_the_server(
    evaluate: Callable[..., dict[str, Any]], tiny_model: Path, tmp_path: Path
) -> None:
    summary = evaluate("--count", "3")
    assert (summary["mode"], summary["success"]["mean"], summary["token_ids"]) == ("chat", 1.0, ["approximate"])
    messages = evaluate(
        "--count", "3", "--mode", "chat", "--tokenizer", str(tiny_model), "--out", str(tmp_path / "second")
    )
    tokens = evaluate("--count", "3", "--tokenizer", str(tiny_model), "--out", str(tmp_path / "third"))
    assert messages["success"]["mean"] == 1.0 and messages["token_ids"] == tokens["token_ids"] == ["exact"]
    by_messages, by_tokens = (
        {(record["uid"], record["session"]): record for record in records(tmp_path / name)}
        for name in ("second", "third")
    )
    assert by_messages.keys() == by_tokens.keys()
    for key, row in by_messages.items():
        for name in ("prompt_ids", "response_ids", "response_mask"):
            assert row[name] == by_tokens[key][name]


def test_ids_of_another_tokenizer_are_left_alone(evaluate: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "other", texts=["Hi user", "assistant"])
    summary = evaluate("--count", "2", "--mode", "chat", "--tokenizer", str(tmp_path / "other"))
    assert (summary["success"]["mean"], summary["token_ids"]) == (1.0, ["approximate"])


def _last_request(server: Server, *arguments: str, models: dict[str, Any], refusals: Sequence[Any], out: Path) -> Any:
    """Evaluates one episode with messages; the server refuses some requests before it answers."""
    given = ["evaluate", "--env", "python_math", "--endpoint", server.url, "--model", "m", "--count", "1",
             "--mode", "chat", "--json", "--retries", "0", "--out", str(out), *arguments]  # fmt: skip
    said = choice(message={"content": r"\boxed{1}"})
    server.answers = [{"data": [{"id": "m", **models}]}, *refusals, said, said]
    assert main(given) == 0
    assert not server.answers
    return server.bodies[-1]


@pytest.mark.slow
def test_a_server_that_refuses_to_give_ids_is_asked_without(tiny_model: Path, tmp_path: Path) -> None:
    ids = refuse(400, "Unrecognized request argument supplied: return_token_ids")
    length = refuse(400, "Unsupported parameter: use 'max_completion_tokens' instead")
    with serving() as server:
        for number, refusals in enumerate(([], [ids], [ids, length], [length, ids])):
            last = _last_request(
                server, "--tokenizer", str(tiny_model), models={}, refusals=refusals, out=tmp_path / str(number)
            )
            assert "return_token_ids" not in last
            assert ("max_completion_tokens" in last) == (length in refusals)


def test_the_context_is_that_of_the_model_unless_a_shorter_one_is_chosen(tmp_path: Path) -> None:
    with serving() as server:
        options: dict[str, Any] = {"models": {"max_model_len": 131_072}, "refusals": ()}
        limits = ("--limit", "max_response_tokens=100000")
        assert _last_request(server, *limits, **options, out=tmp_path / "a")["max_tokens"] == 100_000
        limits = (*limits, "--limit", "max_context_tokens=4000")
        assert 0 < _last_request(server, *limits, **options, out=tmp_path / "b")["max_tokens"] < 4_000


def test_the_turn_that_a_q_function_values_most_is_played(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tmp_path: Path
) -> None:
    flips = iter([True, False] * 50)
    solver.is_right = lambda product: next(flips)
    (tmp_path / "q.py").write_text("def q(messages, text):\n    return float('boxed{0}' in text)\n")
    options = ["--count", "2", "--best-of", "2", "--q", f"{tmp_path}/q.py:q", "--concurrency", "1"]
    assert evaluate(*options)["success"]["mean"] == 0.0  # one of two is wrong, and this Q wants it
    assert len(solver.asked) >= 2 * 2 * 2
    for wrong in (["--best-of", "2"], [*options, "--temperature", "0"], [*options, "--sampling-seed", "1"]):
        told = evaluate(*wrong, "--out", str(tmp_path / "other"), code=2)["error"]
        assert "--best-of takes --q, --phi or --diversity" in told
    assert "best_of was 2 and is None" in evaluate("--count", "3", "--concurrency", "1", code=2)["error"]


@pytest.mark.slow
def test_an_outcome_model_chooses_the_episode_whose_tokens_it_prefers_to_its_reference(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    flips = iter([True] * 4 + [False] * 4)  # the first episode of each row is right, the second is wrong
    solver.is_right = lambda product: next(flips)
    make_tiny_model(tmp_path / "phi", seed=1)
    models = ["--phi", str(tmp_path / "phi"), "--reference", str(tiny_model)]
    options = ["--count", "4", "--samples", "2", "--select", "--tokenizer", str(tiny_model), "--concurrency", "1"]
    found = evaluate(*options, *models)
    assert found["success"]["mean"] == 0.5 and found["pass_at_k"]["2"] == 1.0
    phi, reference = (AutoModelForCausalLM.from_pretrained(path) for path in (tmp_path / "phi", tiny_model))

    def value(row: dict[str, Any]) -> float:
        ids = torch.tensor([row["prompt_ids"] + row["response_ids"]])
        with torch.no_grad():
            ratios = phi(ids).logits[0].log_softmax(-1) - reference(ids).logits[0].log_softmax(-1)
        places = [len(row["prompt_ids"]) + place for place, bit in enumerate(row["response_mask"]) if bit]
        return sum(float(ratios[place - 1, ids[0, place]]) for place in places)

    lines = list(map(json.loads, (tmp_path / "out" / "selected.jsonl").read_text().splitlines()))
    for line in lines:
        siblings = [row for row in records(tmp_path / "out") if row["uid"] == line["task"]]
        best = max(siblings, key=value)
        assert (line["sample"], line["outcome"]) == (best["session"], best["acc"]) and len(siblings) == 2
    assert found["selected"]["mean"] == sum(line["outcome"] for line in lines) / len(lines)
    for wrong in ([*options, *models[:2]], [*models], [*options, *models, "--q", "x.py:q"]):
        assert "--phi takes --reference, --tokenizer" in evaluate(*wrong, code=2)["error"]
    empty = [*options, "--phi", str(tmp_path), "--reference", str(tiny_model)]
    assert "no model is in" in evaluate(*empty, code=2)["error"]
    turns = ["--count", "1", "--best-of", "2", "--tokenizer", str(tiny_model), "--out", str(tmp_path / "turns")]
    solver.is_right = lambda product: True
    evaluate(*turns, *models)
    assert "q was" in evaluate(*turns, *models[:3], str(tmp_path / "phi"), code=2)["error"]


@pytest.mark.slow
def test_the_attempts_at_a_row_search_a_tree(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    flips = iter([False, True] * 50)
    solver.is_right = lambda product: next(flips)
    (tmp_path / "q.py").write_text("def q(messages, text):\n    return float('boxed{0}' not in text)\n")
    options = ["--count", "1", "--samples", "4", "--tree", "2", "--tokenizer", str(tiny_model), "--concurrency", "1"]
    summary = evaluate(*options, "--q", f"{tmp_path}/q.py:q")
    assert summary["success"]["mean"] == 0.75, "only the first attempt is a plain sample"
    assert len({row["uid"] for row in records(tmp_path / "out")}) == 1
    for wrong in (
        ["--samples", "1"],
        ["--temperature", "0"],
        ["--mode", "chat"],
        ["--best-of", "2"],
        ["--ray", "auto"],
    ):
        assert "--tree takes" in evaluate(*options, *wrong, "--out", str(tmp_path / "other"), code=2)["error"]
    assert "--q-weight" in evaluate(*options, "--q-weight", "0.5", "--out", str(tmp_path / "o"), code=2)["error"]
    assert "--tree" in evaluate("--count", "1", "--exploration", "1", "--out", str(tmp_path / "o"), code=2)["error"]
    assert "tree was" in evaluate(*options, "--exploration", "2", "--q", f"{tmp_path}/q.py:q", code=2)["error"]


_OPEN_ENV = """
from verl_agentic import EnvRow, Message, ToolEnv

def make_env(row):
    return ToolEnv(row, [])

def make_rows(*, split, count, seed):
    return [EnvRow(prompt=(Message("user", f"Write text {number}."),)) for number in range(count)]
"""


@pytest.mark.slow
def test_judges_score_the_episodes_of_an_environment_without_a_score(
    evaluate: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "writing").mkdir()
    (tmp_path / "writing" / "__init__.py").write_text(_OPEN_ENV)
    options = ["--env", str(tmp_path / "writing"), "--count", "2"]
    assert evaluate(*options, code=1)["void"] == 2, "nothing scores them"
    with judging(lambda body: verdict(body, passed="text 1" in dict(data_of(body))["task"])) as server:
        (tmp_path / "judge.yaml").write_text(f"endpoint: {server.url}\nmodels: [m]\n")
        judged = ["--judge", str(tmp_path / "judge.yaml"), "--out", str(tmp_path / "judged")]
        summary = evaluate(*options, *judged)
    assert (summary["success"]["mean"], summary["void"], len(server.bodies)) == (0.5, 0, 2)
    (tmp_path / "judge.yaml").write_text("models: [m]\n")
    assert "endpoint" in evaluate(*options, *judged[:2], "--out", str(tmp_path / "o"), code=2)["error"]
    (tmp_path / "judge.yaml").write_text("judge\n")
    assert "--judge" in evaluate(*options, *judged[:2], "--out", str(tmp_path / "p"), code=2)["error"]


def test_the_environment_may_choose_one_of_several_answers(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def select(env: Any, answers: list[str]) -> int | None:
        seen.append(answers)
        return 1

    seen: list[list[str]] = []
    package = load_env_package("python_math")
    assert package.make_rows is not None
    (row,) = package.make_rows(split="test", count=1, seed=0)
    assert "needs an environment with select" in evaluate("--count", "3", "--samples", "2", "--select", code=2)["error"]
    monkeypatch.setattr(type(package.make_env(row)), "select", select, raising=False)
    summary = evaluate("--count", "3", "--samples", "2", "--select")
    assert summary["selected"]["mean"] == 1.0 and len(seen) == 3
    assert all(len(answers) == 2 and "boxed" in answers[0] for answers in seen)
    assert len((tmp_path / "out" / "selected.jsonl").read_text().splitlines()) == 3
    assert "selected" in (tmp_path / "out" / "report.html").read_text()


def viewed(folder: Path, tmp_path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the summaries and the details of what the viewer shows of a folder."""
    page = tmp_path / "page.html"
    assert main(["view", str(folder), "--export", str(page)]) == 0
    blocks = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page.read_text(), re.DOTALL)
    data, *details = [json.loads(text) for _, text in blocks]
    return [row for group in data["groups"] for row in group["rows"]], details


def test_the_viewer_opens_an_evaluation_with_tokens_texts_rewards_and_stop_reasons(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    solver.is_right = lambda product: product % 2 == 0
    evaluate("--tokenizer", str(tiny_model), "--count", "3", "--samples", "2")
    rows, details = viewed(tmp_path / "out", tmp_path)
    stored = {(r["uid"], r["session"]): r for r in records(tmp_path / "out")}
    assert len(rows) == len(details) == 6 and {row["stop_reason"] for row in rows} == {"answered"}
    for row, detail in zip(rows, details, strict=True):
        trajectory = record = stored[row["uid"], row["session"]]
        assert (row["reward"], row["acc"]) == (record["reward"], record["acc"])
        assert detail["tokens"]["ids"] == trajectory["response_ids"]
        assert "".join(detail["tokens"]["texts"]) == solver.tokenizer.decode(trajectory["response_ids"])
        assert detail["tokens"]["mask"] == trajectory["response_mask"]
        assert {segment["kind"] for segment in detail["segments"]} == {"model", "tool"}
        assert [call["name"] for turn in detail["turns"] for call in turn["calls"]] == ["python"]
        assert detail["final_answer"] and detail["ground_truth"] and detail["spans"]
        paid = detail["tokens"]["columns"]["reward"]
        assert sum(paid if isinstance(paid, list) else [paid]) == record["reward"]


def test_the_viewer_shows_the_text_of_turns_where_ids_only_counted_bytes(
    evaluate: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    evaluate("--count", "2")
    _, details = viewed(tmp_path / "out", tmp_path)
    for detail in details:
        assert set(detail["tokens"]["ids"]) == {WITHHELD} and detail["tokens"]["texts"] is None
        texts = [turn["text"] for turn in detail["turns"]]
        assert "print(" in texts[0] and str(detail["final_answer"]) in texts[1]


def test_the_viewer_shows_void_attempts_and_the_last_one_of_several(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    evaluate("--tokenizer", str(tiny_model), "--count", "2")
    first, second = records(tmp_path / "out")
    void = {**second, "is_void": True, "stop_reason": "infra_error", "error": "gone", "traceback": "Traceback: gone"}
    again = {**void, "error": "gone again", "time": second["time"] + 1}
    for path in (tmp_path / "out" / "trajectories").glob("*.arrows"):
        path.unlink()
    write_run(tmp_path / "out", trajectories=[again, void, first])
    rows, details = viewed(tmp_path / "out", tmp_path)
    assert {row["error"] for row in rows} == {"", "gone again"} and [row["is_void"] for row in rows].count(True) == 1
    assert sorted(detail["traceback"] for detail in details) == ["", "Traceback: gone"]
    assert all({s["kind"] for s in detail["segments"]} == {"model", "tool"} for detail in details)
    assert all(detail["prompt"] and len(detail["turns"]) == 2 for detail in details)


def test_the_report_links_every_episode_to_its_place_in_the_viewer_beside_it(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tiny_model: Path, tmp_path: Path
) -> None:
    solver.is_right = lambda product: product % 2 == 0
    evaluate("--tokenizer", str(tiny_model), "--count", "4", "--samples", "2")
    html = (tmp_path / "out" / "report.html").read_text()
    links = [dict(parse_qsl(unescape(link))) for link in re.findall('href="viewer.html#([^"]*)"', html)]
    blocks = re.findall(r'id="data">(.*?)</script>', (tmp_path / "out" / "viewer.html").read_text(), re.DOTALL)
    rows = [row for group in json.loads(blocks[0])["groups"] for row in group["rows"]]
    place = ("split", "step", "uid", "session", "index")
    assert len(links) == 8
    assert sorted([link[n] for n in place] for link in links) == sorted([str(row[n]) for n in place] for row in rows)


def test_a_report_without_a_viewer_names_the_command_that_shows_the_episodes(
    evaluate: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse_log(run_dir: Path) -> Any:
        raise DataError("no episode, got none; play some")

    monkeypatch.setattr(run_view, "RunView", refuse_log)
    evaluate("--count", "2")
    html = (tmp_path / "out" / "report.html").read_text()
    assert f"<code>verl-agentic view {tmp_path / 'out'}</code>" in html and "viewer.html" not in html


def test_several_evaluations_are_shown_together(evaluate: Callable[..., Any], tiny_model: Path, tmp_path: Path) -> None:
    evaluate("--count", "2", "--tokenizer", str(tiny_model), "--turns", "1,2")
    rows, _ = viewed(tmp_path / "out", tmp_path)
    assert {row["uid"].partition(":")[0] for row in rows} == {"turns-1", "turns-2"} and len(rows) == 4


def test_success_is_drawn_over_the_number_of_turns(
    evaluate: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    told = evaluate("--count", "2", "--tokenizer", str(tiny_model), "--turns", "4,1,2")
    # The tool takes a turn, and its result is told in the next one.
    assert [(point["max_turns"], point["mean"]) for point in told] == [(1, 0.0), (2, 1.0), (4, 1.0)]
    assert json.loads((tmp_path / "out" / "turns.json").read_text()) == told
    assert "<polyline" in (tmp_path / "out" / "turns.svg").read_text()
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Success is highest with max_turns=2: 1.00 [" in report
    assert all((tmp_path / "out" / link).is_file() for link in re.findall('href="([^"]*)"', report))
    assert len(records(tmp_path / "out" / "turns-2")) == 2
    refused = evaluate("--turns", "1,x", code=2)
    assert "--turns must be numbers from 1 on, such as 1,2,4,8, got '1,x'" in refused["error"]


def test_an_evaluation_is_taken_up_where_it_ended_and_only_with_its_own_settings(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tmp_path: Path
) -> None:
    evaluate("--count", "2")
    asked = len(solver.asked)
    again = evaluate("--count", "2")
    assert len(solver.asked) == asked + 1, "nothing but the greeting"
    assert again["success"]["mean"] == 1.0
    solver.is_right = lambda product: False
    more = evaluate("--count", "2", "--samples", "2")
    assert (more["success"]["mean"], more["pass_at_k"]["2"], len(records(tmp_path / "out"))) == (0.5, 1.0, 4)
    error = evaluate("--count", "2", "--temperature", "0", code=2)["error"]
    assert "holds another evaluation, got temperature was None and is 0.0; use another --out" in error


def test_rows_of_a_file_are_played_with_the_limits_that_are_given(
    evaluate: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    make_rows = load_env_package("python_math").make_rows
    assert make_rows is not None
    write_rows(make_rows(split="train", count=2, seed=9), tmp_path / "rows.jsonl")
    summary = evaluate("--rows", str(tmp_path / "rows.jsonl"), "--limit", "max_turns=1")
    assert summary["stop_reasons"] == {"max_turns": 2} and summary["success"]["mean"] == 0.0
    assert {r["task_id"][:6] for r in records(tmp_path / "out")} == {"train-"}


def test_a_server_that_fails_gives_void_episodes_and_exit_code_1(
    evaluate: Callable[..., dict[str, Any]], solver: Solver, tmp_path: Path
) -> None:
    evaluate("--count", "1")
    solver.is_down = True
    error = evaluate("--count", "2", code=2)["error"]
    assert "the server answers 503, got the engine is down" in error


def test_void_episodes_are_counted_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        arguments = ["evaluate", "--env", "python_math", "--endpoint", server.url, "--model", "m", "--count", "2",
                     "--concurrency", "1", "--retries", "0", "--limit", "max_retries=0"]  # fmt: skip
        arguments += ["--out", str(tmp_path)]
        hi = choice(message={"content": "Hi"})
        server.answers = [{"data": []}, hi, refuse(400, "too long"), hi]
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert "1 void: PolicyError: the server answers 400, got too long" in shown and "of 2" in shown
        server.answers = [{"data": []}, hi, refuse(400, "too long")]
        assert main([*arguments[:8], "1", *arguments[9:]]) == 1
    assert "1 void" in capsys.readouterr().out
    assert json.loads((tmp_path / "summary.json").read_text())["void"] == 1


def served(tmp_path: Path, answer: Callable[[dict[str, Any]], Any]) -> tuple[int, dict[str, Any]]:
    """Evaluates three tasks of python_math in chat mode; returns the exit code and the summary."""
    app = FastAPI()

    async def answered(request: Request) -> Response:
        said = answer(await request.json() if request.method == "POST" else {})
        return said if isinstance(said, Response) else JSONResponse(said)

    app.add_route("/{path:path}", answered, methods=["GET", "POST"])
    with answering(app) as service:
        code = main(
            ["evaluate", "--env", "python_math", "--endpoint", service.url, "--model", "m", "--mode", "chat", "--count",
             "3", "--retries", "1", "--limit", "retry_wait_s=0.01", "--out", str(tmp_path)]
        )  # fmt: skip
    return code, json.loads((tmp_path / "summary.json").read_text())


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("refusal", "stop"),
    [
        (
            {"object": "error", "message": "This model's maximum context length is 8192 tokens.", "code": 400},
            "context_full",
        ),
        ({"error": {"code": "context_length_exceeded", "message": "Too long."}}, "context_full"),
        ({"error": {"code": "content_filter", "message": "No."}}, "content_filter"),
    ],
)
def test_a_refused_turn_ends_an_episode_that_counts(tmp_path: Path, refusal: dict[str, Any], stop: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "python", "arguments": '{"code": "print(1)"}'}}
    requests: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> Any:
        requests.append(body)
        is_first = all(message["role"] != "tool" for message in body.get("messages", []))
        return choice(message={"tool_calls": [call]}) if is_first else JSONResponse(refusal, status_code=400)

    code, summary = served(tmp_path, answer)
    assert (code, summary["stop_reasons"], summary["void"]) == (0, {stop: 3}, 0)
    assert len(requests) == 2 + 3 * 2, "models, a test request, and two turns of each episode"


@pytest.mark.slow
def test_an_answer_that_broke_off_is_void_and_not_a_failure_of_the_policy(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Any:
        is_test = body.get("max_tokens", 1) == 1
        return choice(message={"content": "Hi" * is_test}, finish_reason="stop" if is_test else "error")

    code, summary = served(tmp_path, answer)
    assert (code, summary["void"], "answered" in summary["stop_reasons"]) == (1, 3, False)


def test_the_name_of_the_length_and_the_models_context_are_found_out(tmp_path: Path) -> None:
    with serving() as server:
        arguments = ["evaluate", "--env", "python_math", "--endpoint", server.url, "--model", "m", "--count", "1",
                     "--request", "reasoning_effort=low", "--json", "--retries", "0"]  # fmt: skip
        arguments += ["--out", str(tmp_path)]
        said = choice(message={"content": r"\boxed{1}"})
        refusal = refuse(400, "Unsupported parameter: use 'max_completion_tokens' instead")
        server.answers = [{"data": [{"id": "m", "max_model_len": 300}]}, refusal, said, said]
        assert main(arguments) == 0
        assert server.bodies[2]["max_completion_tokens"] <= 300 and "max_tokens" not in server.bodies[2]
        assert server.bodies[2]["reasoning_effort"] == "low"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "completions"], "mode completions needs a tokenizer, got no --tokenizer"),
        (["--protocol", "retool"], "mode chat leaves the protocol to the server, got --protocol retool"),
        (["--limit", "max_turn=3"], "unknown keys in limits, got ['max_turn']"),
        (["--config", "tool_name=x"], "got an unexpected keyword argument 'tool_name'"),
        (["--endpoint", "localhost:1"], "url must begin with http:// or https://"),
        (["--api-key-env", "NO_SUCH_KEY"], "refuses no key"),
        (["--model", "other"], "answers 404, got no such model, got 'other'"),
        (["--option", "level=3"], "unknown options of the rows of 'python_math'"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_played(
    evaluate: Callable[..., dict[str, Any]], tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert message in evaluate(*arguments, "--count", "2", code=2)["error"]
    assert not (tmp_path / "out" / "trajectories").exists()
    assert evaluate("--count", "1")["success"]["mean"] == 1.0, "the folder is as good as new"
