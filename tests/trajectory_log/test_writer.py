"""Written records come back, whatever happens to the disk or the process."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.evaluate.journal import Journal
from verl_agentic.log import writer as writing
from verl_agentic.log.lines import Lines
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.reader import RunLog, load
from verl_agentic.log.secrets import Secrets
from verl_agentic.log.writer import LogWriter


def record(session: int = 0, **columns: Any) -> dict[str, Any]:
    return {"uid": "g", "session": session, "split": "train", "step": 1, **columns}


def written(folder: Path, *records: dict[str, Any], **options: Any) -> LogWriter:
    log = LogWriter("trajectories", LogOptions(dir=str(folder), **options), secrets=Secrets({}))
    for one in records:
        log.append(lambda one=one: [one])
    log.close()
    return log


def test_prompts_and_answers_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written(tmp_path / "log", record())
        Lines(tmp_path / "lines.jsonl").append({"text": "secret"})
        journal = Journal(tmp_path / "episodes.jsonl")
        journal.append({"key": "k"})
        journal.close()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 4 and set(modes.values()) == {0o600}, modes


def test_what_is_written_comes_back_with_its_types(tmp_path: Path) -> None:
    log_probs = np.array([-0.25, -1.5], dtype=np.float32)
    call = {"name": "python", "arguments": '{"x": 1}', "result": None, "is_error": True, "error_kind": "tool_timeout"}
    turn = {"index": 0, "text": "é\u2028<", "content": "", "calls": [call], "observations": ["a\nb"], "num_tokens": 2}
    written(
        tmp_path,
        record(
            response_ids=[3, 4],
            rollout_log_probs=log_probs,
            turns=[turn],
            numbers={"acc": 1.0, "stop/answered": 1.0},
            reward=0.5,
        ),
    )
    (back,) = load(tmp_path).to_dict("records")
    assert back["response_ids"].tolist() == [3, 4] and back["rollout_log_probs"].tolist() == [-0.25, -1.5]
    assert dict(back["numbers"]) == {"acc": 1.0, "stop/answered": 1.0}
    assert (back["reward"], np.isnan(back["acc"]), back["error"], back["score"]) == (0.5, True, "", None)
    (told,) = back["turns"]
    assert told["text"] == "é\u2028<" and told["observations"].tolist() == ["a\nb"]
    assert told["calls"][0]["arguments"] == '{"x": 1}' and told["calls"][0]["result"] is None


def test_a_process_that_is_killed_loses_no_record_that_was_written_and_leaves_a_log_that_reads(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from verl_agentic.log.log_options import LogOptions\n"
        "from verl_agentic.log.writer import LogWriter\n"
        "log = LogWriter('trajectories', LogOptions(dir=sys.argv[1]))\n"
        "for session in range(10**9):\n"
        "    log.append(lambda s=session: [dict(uid='g', session=s, response_ids=list(range(2000)))])\n"
        "    time.sleep(0.002)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    try:
        deadline = time.monotonic() + 60
        while sum(f.stat().st_size for f in tmp_path.rglob("*.arrows")) < 100_000:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (path,) = tmp_path.rglob("*.arrows")
    whole = path.read_bytes()
    sessions = load(tmp_path)["session"].tolist()
    assert sessions == list(range(len(sessions))) and len(sessions) > 5
    # Wherever the end falls, what stands before it is read.
    for cut in (1, 7, 100, 3000):
        path.write_bytes(whole[:-cut])
        left = load(tmp_path)["session"].tolist()
        assert left == list(range(len(left))) and len(left) >= len(sessions) - 256


def test_a_file_of_which_not_even_the_head_was_written_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, record())
    for name, content in (("empty", b""), ("cut", b"\xff\xff\xff\xff\x10")):
        (tmp_path / "trajectories" / f"trajectories-{name}.arrows").write_bytes(content)
    assert load(tmp_path)["session"].tolist() == [0]


def test_a_full_disk_stops_nobody_and_what_comes_when_there_is_room_again_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)), secrets=Secrets({}))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log.append(lambda: [record(0)])
    _wait_for(lambda: list(tmp_path.rglob("*.arrows")))
    try:
        # The kernel refuses what makes a file larger than this: as with a full disk, a write is cut short.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        big = np.random.default_rng(0).integers(0, 2**31, 20_000).astype(np.int32)
        with caplog.at_level(logging.WARNING):
            for session in (1, 2):
                log.append(lambda session=session: [record(session, response_ids=big)])
            _wait_for(lambda: log.num_lost == 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    log.append(lambda: [record(3)])
    log.close()
    assert load(tmp_path)["session"].tolist() == [0, 3]
    assert "records of" in caplog.text and "are lost so far: OSError" in caplog.text


def test_a_record_that_does_not_fit_does_not_take_others_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[dict[str, Any]]:
        raise RuntimeError("no such text")

    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)), secrets=Secrets({}))
    log.append(lambda: [record(0)])
    log.append(lambda: [record(1, colour="red")])
    log.append(lambda: [record(2, response_ids=["x"])])
    log.append(broken)
    log.append(lambda: [record(4)])
    log.close()
    assert load(tmp_path)["session"].tolist() == [0, 4] and log.num_lost == 3
    assert "no such columns, got ['colour']" in caplog.text


@pytest.mark.slow
def test_files_are_rotated_and_the_oldest_are_removed(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 2**31, 30_000).astype(np.int32)
    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path), file_mb=0.1), secrets=Secrets({}))
    for session in range(6):
        log.append(lambda session=session: [record(session, response_ids=ids)])
        _wait_for(lambda session=session: len(list(tmp_path.rglob("*.arrows"))) == session + 1)
    log.close()
    assert load(tmp_path)["session"].tolist() == list(range(6))
    # 120 KB each: 0.3 MB hold two of them.
    capped = LogWriter(
        "trajectories", LogOptions(dir=str(tmp_path / "b"), file_mb=0.1, total_gb=0.3 / 1024), secrets=Secrets({})
    )
    for session in range(6):
        capped.append(lambda session=session: [record(session, response_ids=ids)])
        _wait_for(
            lambda session=session: (tmp_path / "b" / writing.FOLDER / f"{capped._name}-{session:05d}.arrows").exists()
        )
    capped.close()
    assert load(tmp_path / "b")["session"].tolist() == [4, 5]


def test_a_writer_whose_file_was_removed_begins_another_one(tmp_path: Path) -> None:
    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)), secrets=Secrets({}))
    log.append(lambda: [record(0)])
    _wait_for(lambda: list(tmp_path.rglob("*.arrows")))
    time.sleep(0.05)
    next(tmp_path.rglob("*.arrows")).unlink()
    log.append(lambda: [record(1)])
    log.close()
    assert load(tmp_path)["session"].tolist() == [1] and log.num_lost == 0


def test_half_a_surrogate_pair_is_replaced_wherever_it_stands(tmp_path: Path) -> None:
    half = "a\ud83d"
    call = {"name": half, "arguments": "{}"}
    turn = {"index": 0, "text": half, "calls": [call], "observations": [half]}
    written(tmp_path, record(tools=[half], final_answer=half, error=half, turns=[turn], numbers={half: 1.0}))
    (back,) = load(tmp_path).to_dict("records")
    assert (back["final_answer"], back["error"], back["tools"].tolist()) == ("a?", "a?", ["a?"])


def test_a_disk_that_hangs_does_not_keep_the_process_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_CLOSE_S", 0.2)
    log, hung = LogWriter("updates", LogOptions(dir=str(tmp_path)), secrets=Secrets({})), threading.Event()
    for _ in range(20):  # whole batches: few of them may wait
        log.append(lambda: hung.wait() and [])
    started = time.monotonic()
    log.close()
    assert time.monotonic() - started < 10 and log.num_lost >= 20 - 8 - 8
    hung.set()


def test_a_queue_that_is_full_drops_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(writing._MAX_WAITING, "trajectories", 2)
    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)), secrets=Secrets({}))
    monkeypatch.setattr(log, "_thread", object())  # nobody takes anything out
    for session in range(5):
        log.append(lambda session=session: [record(session)])
    assert log.num_lost == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"folder": "x"}, r"unknown keys in here, got \['folder'\]"),
        ({"dir": "x", "file_mb": 0}, r"here.file_mb must be a number \(above 0\), got 0"),
        ({"dir": "x", "file_mb": 512, "total_gb": 0.25}, "here.total_gb must hold a file of 512 MiB"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_settings(LogOptions, options, section="here")


def test_a_run_that_goes_on_is_read_on(tmp_path: Path) -> None:
    log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)), secrets=Secrets({}))
    log.append(lambda: [record(0)])
    _wait_for(lambda: list(tmp_path.rglob("*.arrows")))
    _wait_for(lambda: RunLog(tmp_path).summaries.num_rows == 1)
    run = RunLog(tmp_path)
    assert run.summaries["session"].to_pylist() == [0] and not run.refresh()
    log.append(lambda: [record(1, final_answer="Forty-Two")])
    log.close()
    assert run.refresh() and run.summaries["session"].to_pylist() == [0, 1]
    assert run.record(1)["final_answer"] == "Forty-Two" and run.search("forty") == [1]


def _wait_for(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
