"""`verl-agentic view`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from stored_runs import stored_run

from verl_agentic.cli import main


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 4 steps with 3 groups of 4, and one of validation."""
    return stored_run(tmp_path_factory.mktemp("run"), None, steps=4, groups=3, sessions=4, words=1)


def written(path: Path) -> list[dict]:
    """Returns what is said of the trajectories that a page holds."""
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert block is not None
    return [row for group in json.loads(block[1])["groups"] for row in group["rows"]]


def test_the_newest_groups_are_written_whole_until_there_are_enough(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["view", str(run_dir), "--export", str(page), "--limit", "15"]) == 0
    rows = written(page)
    assert len(rows) == 17 and {row["step"] for row in rows} == {3, 4}
    assert sum(row["step"] == 4 for row in rows) == 13, "three groups of training and one of validation"
    assert "17 trajectories" in capsys.readouterr().out


@pytest.mark.slow
def test_steps_and_groups_are_chosen(run_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["view", str(run_dir), "--export", str(page), "--step", "2:3"]) == 0
    assert {row["step"] for row in written(page)} == {2, 3} and len(written(page)) == 24
    assert main(["view", str(run_dir), "--export", str(page), "--step", "2"]) == 0
    assert {row["step"] for row in written(page)} == {2}
    keys = ["--key", "train/1/g0001-02", "--key", "val/4/held-out"]
    assert main(["view", str(run_dir), "--export", str(page), *keys]) == 0
    assert sorted({row["uid"] for row in written(page)}) == ["g0001-02", "held-out"]


def test_a_spot_check_has_as_many_random_as_suspicious_ones_and_a_seed_repeats_it(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def chosen(seed: int) -> list[tuple[str, int, list[str]]]:
        page = tmp_path / "check.html"
        assert main(["view", str(run_dir), "--export", str(page), "--spot-check", "2", "--seed", str(seed)]) == 0
        return [(row["uid"], row["session"], row["why"]) for row in written(page)]

    first = chosen(1)
    assert [why for _, _, why in first].count(["random"]) == 2 and len(first) == 4
    assert "2 trajectories at random, 2 suspicious" in capsys.readouterr().out
    assert chosen(1) == first and chosen(2) != first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "2"], "add --export FILE"),
        (["--spot-check", "2"], "add --export FILE"),
        (["--export", "page.html", "--step", "77"], "no trajectory passes the filters"),
        (["--export", "missing/folder/page.html"], "choose another --export"),
    ],
)
def test_what_cannot_be_done_is_refused(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["view", str(run_dir), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--step", "x"], ["--key", "train/x/a"], ["--key", "a"], ["--limit", "0"]])
def test_a_wrong_step_key_or_limit_is_refused(run_dir: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run_dir), "--export", "page.html", *arguments])
    assert ended.value.code == 2


def test_a_folder_without_a_log_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path / "missing")]) == 2
    assert "no such folder" in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("nothing")
    for arguments in ([], ["--export", str(tmp_path / "page.html")]):
        assert main(["view", str(tmp_path), *arguments, "--no-browser"]) == 2
        said = capsys.readouterr().err
        assert f"nothing to view below {tmp_path}" in said and "trajectories-*.arrows" in said
        assert "evaluation.json" in said and "log.dir" in said and "--out" in said


def test_a_run_is_shown_before_an_evaluation_that_lies_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_run(tmp_path / "run", None, steps=2, groups=2, sessions=2, words=1)
    stored_run(tmp_path / "eval", None, steps=1, groups=1, sessions=4, words=1)
    (tmp_path / "eval" / "evaluation.json").write_text("{}")
    page = tmp_path / "page.html"
    assert main(["view", str(tmp_path), "--export", str(page)]) == 0
    assert written(page) and f"pass their own folders: {tmp_path / 'eval'}" in capsys.readouterr().err
    assert main(["view", str(tmp_path / "eval"), "--export", str(page)]) == 0
    assert not capsys.readouterr().err


def test_the_page_is_served_until_ctrl_c(run_dir: Path) -> None:
    command = ["view", str(run_dir), "--no-browser"]
    # Whoever runs the tests may have Ctrl-C ignored, and that is inherited.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; import sys; from verl_agentic.cli import main; sys.exit(main({command!r}))"
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_PROXY": "*"}
    )
    try:
        assert server.stdout is not None
        address, _, secret = server.stdout.readline().split()[0].partition("?")
        assert address.startswith("http://127.0.0.1:") and secret.startswith("secret=")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{address}api/run?{secret}", timeout=20) as answer:
            assert json.load(answer)["trajectories"] == 49
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 130
    finally:
        server.kill()
        server.communicate()
