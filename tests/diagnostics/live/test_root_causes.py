"""Why a run failed: Ray's layers are taken off, and the errors of all processes become one list."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, RayTaskError

from verl_agentic.observe.live.root_causes import (
    ErrorRecord,
    failure_report,
    last_frame,
    merged,
    read_errors,
    root_of,
)

_SENT = """ray::TaskRunner.run() (pid=1, ip=10.0.0.1)
  File "/site/verl/trainer/main_ppo.py", line 150, in run
    self.trainer.fit()
ray.exceptions.RayTaskError(ValueError): ray::WorkerDict.update() (pid=2, ip=10.0.0.1)
  File "/site/verl/workers/losses.py", line 7, in loss
    raise ValueError("boom")
ValueError: boom"""
_RECORD = ErrorRecord(
    time=100.0,
    process="ray::WorkerDict (pid 2 on a)",
    actor="WorkerDict",
    type="ValueError",
    message="boom",
    traceback=_SENT,
    where="/site/verl/workers/losses.py:7",
    count=2,
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An exception as it arrives at the driver, having passed through two actors."""
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    inner = RayTaskError("update", "the inner one", ValueError("boom"), proctitle="p", pid=2, ip="10.0.0.1")
    return RayTaskError("run", _SENT, inner, proctitle="p", pid=1, ip="10.0.0.1").as_instanceof_cause()


def test_what_passed_through_actors_is_told_as_what_was_raised(sent: Exception) -> None:
    root = root_of(sent)
    assert (root.type, root.message) == ("ValueError", "boom")
    plain = RayTaskError("run", _SENT, ValueError("boom"), proctitle="p", pid=1, ip="10.0.0.1").as_instanceof_cause()
    assert root_of(plain).where == "/site/verl/workers/losses.py:7" and _SENT in root_of(plain).traceback


def test_an_error_of_our_own_is_its_own_root_whatever_it_was_raised_from() -> None:
    def fail() -> None:
        try:
            raise KeyError("x")
        except KeyError as cause:
            raise ValueError("no x; set x") from cause

    with pytest.raises(ValueError, match="no x") as raised:
        fail()
    root = root_of(raised.value)
    assert root.where == last_frame(raised.value) and root.where.split(":")[0].endswith("test_root_causes.py")
    assert (root.type, root.message, root.traceback) == ("ValueError", "no x; set x", "")


def test_the_death_of_an_actor_is_a_root_and_says_which_one_died() -> None:
    died = ActorDiedError()
    died.error_msg = (
        "The actor died.\n\tclass_name: Victim\n\tactor_id: ab12\n\tpid: 7\nWorker exit type: SYSTEM_ERROR Worker exit "
        "detail: connection error. Some common causes include: (1) a long text."
    )
    root = root_of(died)
    assert root.type == "ActorDiedError" and "class_name: Victim; pid: 7" in root.message
    assert "ab12" not in root.message and "long text" not in root.message and "memory ran out" in root.message


def test_the_same_error_of_several_processes_is_one_and_the_one_raised_first_comes_first() -> None:
    later = replace(_RECORD, time=101.0, process="ray::WorkerDict (pid 3 on b)", count=1)
    other = replace(_RECORD, time=99.0, type="OSError", message="disk", where="/x.py:1", count=1)
    found = merged([later, _RECORD, other])
    assert [(one.type, one.count, one.num_processes) for one in found] == [("OSError", 1, 1), ("ValueError", 3, 2)]
    assert found[1].process == _RECORD.process


def test_the_report_lists_the_errors_and_points_at_the_one_that_ended_the_run() -> None:
    ended = RayTaskError("run", _SENT, ValueError("boom"), proctitle="p", pid=1, ip="10.0.0.1").as_instanceof_cause()
    other = replace(_RECORD, time=99.0, type="OSError", message="disk\nfull", where="/x.py:1", count=1, traceback="")
    lines = failure_report(ended, [_RECORD, replace(_RECORD, process="q", time=102.0), other]).splitlines()
    assert lines[2:6] == [
        "First errors of its processes, the earliest first (2 of 2):",
        "1. OSError: disk full",
        "   in ray::WorkerDict (pid 2 on a)",
        "2. ValueError: boom",
    ]
    assert lines[6].endswith(", 4 times in 2 processes")
    assert '   File "/site/verl/workers/losses.py", line 7, in loss' in lines
    assert lines[-2] == "Ended by number 2, ValueError: boom"


def test_what_no_process_kept_is_told_with_its_own_traceback() -> None:
    lines = failure_report(
        RayTaskError("run", _SENT, ValueError("boom"), proctitle="p", pid=1, ip="1.1.1.1"), []
    ).splitlines()
    assert lines[2] == "Ended by ValueError: boom"
    assert lines[3:-1] == [
        '   File "/site/verl/trainer/main_ppo.py", line 150, in run',
        "     self.trainer.fit()",
        '   File "/site/verl/workers/losses.py", line 7, in loss',
        '     raise ValueError("boom")',
    ]


def test_errors_of_earlier_runs_and_broken_lines_are_left_out(tmp_path: Path) -> None:
    fields = asdict(_RECORD)
    del fields["num_processes"]
    lines = [json.dumps(fields), json.dumps({**fields, "time": 5.0}), '{"time": 1', '{"other": 1}']
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "errors-h-1-ab.jsonl").write_text("\n".join(lines))
    assert read_errors(tmp_path, since=50.0) == [_RECORD]
    assert len(read_errors(tmp_path)) == 2
