"""`verl-agentic judge probe` against judges on loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from judges import Judge, data_of, gullible, honest, judging, verdict

from verl_agentic.cli import main


def probe(judge: Judge, *arguments: str) -> int:
    with judging(judge) as server:
        options = ["--endpoint", server.url, "--model", "m", "--option", "retries=0"]
        return main(["judge", "probe", *options, *arguments])


@pytest.mark.slow
def test_a_judge_that_gives_way_is_exit_code_1_and_the_report_names_what_got_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert probe(gullible, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["safe"] and "plain_verdict" in report["got_through"] and report["controls_failed"] == []
    assert report["attacks"] >= 30 and report["controls"] == 8
    assert probe(gullible) == 1, "as a table"
    shown = capsys.readouterr().out
    assert f"{len(report['got_through'])} of {report['attacks']} attacks got through" in shown
    assert "plain_verdict" in shown.replace("\n", "") and "fake_verdict" in shown


@pytest.mark.slow
def test_a_judge_that_withstands_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe(honest) == 0
    assert "all 8 controls" in capsys.readouterr().out
    assert probe(honest, "--json", "--repeats", "2") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["safe"] and report["controls"] == 16 and len(report["results"]) == report["attacks"] + 16
    assert report["got_through"] == [] and report["abstained"] == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (lambda body: verdict(body, passed=False), "it cannot tell right from wrong"),
        (lambda body: "{", "no request got a verdict"),
        (lambda body: JSONResponse({}, status_code=500), "check --endpoint and --model"),
    ],
    ids=["fails everything", "malformed", "down"],
)
def test_a_judge_that_cannot_tell_right_from_wrong_is_exit_code_1(
    judge: Judge, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe(judge) == 1
    shown = capsys.readouterr().out
    assert why in shown and "no attack got through" not in shown


@pytest.mark.slow
def test_a_panel_outvotes_one_that_gives_way(capsys: pytest.CaptureFixture[str]) -> None:
    def judge(body: dict[str, Any]) -> Any:
        return (gullible if body["model"] == "weak" else honest)(body)

    assert probe(judge, "--model", "weak", "--model", "n", "--json") == 0
    assert json.loads(capsys.readouterr().out)["models"] == ["m", "weak", "n"]


@pytest.mark.slow
def test_the_key_is_named_and_not_given(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sesame")
    with judging(honest) as server:
        options = ["--endpoint", server.url, "--model", "m", "--json", "--api-key-env", "JUDGE_KEY"]
        assert main(["judge", "probe", *options]) == 0
    assert set(server.keys) == {"Bearer sesame"} and "sesame" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--option", "temprature=1"], "unknown keys in judge, got ['temprature']"),
        (["--option", "cache=x"], "a judge is probed without a cache"),
        (["--endpoint", "localhost"], "begins with http:// or https://"),
        (["--api-key-env", "NO_SUCH_KEY"], "'NO_SUCH_KEY', got none"),
    ],
)
def test_what_cannot_work_is_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe(honest, *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_judge_that_is_swayed_by_length_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    def verbose(body: dict[str, Any]) -> str:
        return verdict(body, passed=len(dict(data_of(body))["answer"]) > 80)

    def bias(judge: Judge, *arguments: str) -> int:
        with judging(judge) as server:
            return main(["judge", "bias", "--endpoint", server.url, "--model", "m", *arguments])

    assert bias(verbose, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["biases"]["length"]["change"] == 1.0 and report["biases"]["sycophancy"]["change"] == 0.0
    assert bias(verbose, "--max-change", "1") == 0 and "+1.000" in capsys.readouterr().out
