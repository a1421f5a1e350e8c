"""The live view of a run, in the screen of an emulated terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.observe.live import live_view
from verl_agentic.observe.live.live_view import can_show, show_run
from verl_agentic.observe.live.step_line import _NUMBERS
from verl_agentic.observe.live.terminal_foot import TerminalFoot

pyte = pytest.importorskip("pyte")
NUMBERS = {"episode/acc": 0.25, "batch/zero_signal_group_frac": 0.5, "actor/ppo_kl": 1e-4, "timing_s/step": 8.0}


class Terminal:
    """A pseudo terminal with a screen; `stream` is its end for programs."""

    def __init__(self, *, columns: int = 80, rows: int = 24) -> None:
        self._ours, theirs = os.openpty()
        self.stream = os.fdopen(theirs, "w")
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._parser = pyte.ByteStream(self.screen)
        self._set_size(columns, rows)
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def resize(self, *, columns: int, rows: int) -> None:
        self.wait()
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def write(self, text: str) -> None:
        """Writes as another process does."""
        os.write(self.stream.fileno(), text.encode())

    def wait(self) -> None:
        """Waits until all output is on the screen."""
        self.write("\033]2;marker\007")
        while self.screen.title != "marker":
            time.sleep(0.005)
        self.screen.title = ""

    def lines(self) -> list[str]:
        """Returns all lines, also those that have left the screen, without empty ones."""
        self.wait()
        columns = range(self.screen.columns)
        history = ["".join(line[column].data for column in columns) for line in self.screen.history.top]
        return [line.rstrip() for line in [*history, *self.screen.display] if line.strip()]

    def close(self) -> None:
        self.stream.close()
        self._thread.join()
        os.close(self._ours)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _show(self) -> None:
        try:
            while output := os.read(self._ours, 65_536):
                self._parser.feed(output)
        except OSError:  # all ends of the programs are closed
            pass


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    emulated = Terminal()
    yield emulated
    emulated.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_EVERY_S", 0.05)


def write_record(folder: Path, name: str, record: Mapping[str, Any]) -> None:
    with (folder / name).open("a") as file:
        file.write(json.dumps({"time": time.time(), **record}) + "\n")


def wait_for(terminal: Terminal, text: str) -> list[str]:
    for _ in range(500):
        lines = terminal.lines()
        if any(text in line for line in lines):
            return lines
        time.sleep(0.01)
    raise AssertionError(f"no {text!r} on the screen:\n" + "\n".join(terminal.lines()))


def test_output_of_other_processes_stays_whole_above_the_foot(terminal: Terminal) -> None:
    foot = TerminalFoot(terminal.stream, height=3)
    written = [f"line {number}{' x' * (number % 35)}" for number in range(200)]
    for number, line in enumerate(written):
        half = len(line) // 2
        terminal.write(line[:half])
        foot.draw([f"foot {number}", "second", "third"])
        terminal.write(f"{line[half:]}\n")
    assert terminal.lines()[-3:] == ["foot 199", "second", "third"]
    foot.close(["the end"])
    child = subprocess.run(["echo", "after"], stdout=terminal.stream, check=True)
    assert child.returncode == 0 and terminal.lines() == [*written, "the end", "after"]


@pytest.mark.parametrize("rows", [16, 40])
def test_a_terminal_of_another_size_has_the_foot_at_its_end(terminal: Terminal, rows: int) -> None:
    foot = TerminalFoot(terminal.stream, height=3)
    terminal.write("".join(f"before {number}\n" for number in range(30)))
    foot.draw(["foot"])
    terminal.resize(columns=60, rows=rows)
    foot.draw(["foot"])
    written = [f"line {number}" for number in range(50)]
    terminal.write("".join(f"{line}\n" for line in written))
    assert terminal.lines()[-51:] == [*written, "foot"] and terminal.screen.display[-3].startswith("foot")


def test_a_low_terminal_has_no_foot(terminal: Terminal) -> None:
    terminal.resize(columns=80, rows=5)
    TerminalFoot(terminal.stream, height=3).draw(["foot"])
    terminal.write("line\n")
    assert terminal.lines() == ["line"] and not can_show(terminal.stream)


def test_the_view_has_progress_numbers_validation_and_the_last_alarm(
    terminal: Terminal, tmp_path: Path, often: None
) -> None:
    write_record(tmp_path, "metrics-old.jsonl", {"step": 90, "metrics": NUMBERS, "time": time.time() - 100})
    with show_run(tmp_path, terminal.stream):
        wait_for(terminal, "0/?")
        write_record(tmp_path, "ended.jsonl", {"step": 0, "num_steps": 60, "ended": False})
        write_record(tmp_path, "metrics-a.jsonl", {"step": 0, "metrics": {"val-core/shop/acc/mean@1": 0.125}})
        for step in range(1, 13):
            write_record(tmp_path, "metrics-a.jsonl", {"step": step, "metrics": {**NUMBERS, "episode/acc": step / 100}})
            wait_for(terminal, f"{step}/60")
        write_record(
            tmp_path, "health.jsonl", {"step": 12, "name": "starved", "message": "gates drop nearly everything"}
        )
        wait_for(terminal, "alarm starved at step 12: gates drop nearly everything")
        shown = terminal.lines()
    for lines in (shown, terminal.lines()):
        assert len(lines) == 8
        assert lines[1].split() == ["step", "acc", "no", "signal", "kl", "s"]
        assert [line.split()[:2] for line in lines[2:6]] == [[str(step), f"{step / 100:.2f}"] for step in range(9, 13)]
        assert lines[6] == "validation at step 0: shop/acc/mean@1 0.12"


def test_all_numbers_fit_into_80_columns(terminal: Terminal, tmp_path: Path, often: None) -> None:
    metrics = {name: 99.5 for _, name, _ in _NUMBERS} | {"response_length/mean": 12_345.0, "actor/ppo_kl": -1e-4}
    metrics |= {"batch/zero_signal_group_frac": 1.0, "episode/void": 1.0, "episode/acc": 1.0, "timing_s/step": 999.9}
    with show_run(tmp_path, terminal.stream):
        write_record(tmp_path, "metrics-a.jsonl", {"step": 1_200, "metrics": metrics})
        lines = wait_for(terminal, "999.9")
    assert not any("…" in line for line in lines) and "-1.0e-04" in "".join(lines)


def test_an_error_ends_the_view_and_is_printed_below_it(terminal: Terminal, tmp_path: Path, often: None) -> None:
    def fail() -> None:
        with show_run(tmp_path, terminal.stream):
            wait_for(terminal, "no alarm")
            raise KeyError("lost")

    with pytest.raises(KeyError):
        fail()
    terminal.write("why the run failed\n")
    assert terminal.lines()[-1] == "why the run failed" and terminal.screen.margins is None


def test_a_log_that_cannot_be_read_ends_no_run(terminal: Terminal, tmp_path: Path, often: None) -> None:
    with show_run(tmp_path, terminal.stream):
        wait_for(terminal, "no alarm")
        write_record(tmp_path, "health.jsonl", {"name": "starved"})
        time.sleep(0.2)
    assert terminal.lines() == [] and terminal.screen.margins is None


def test_only_a_terminal_has_a_view(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_show(terminal.stream) and not can_show(io.StringIO())
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert not can_show(terminal.stream)
    monkeypatch.delenv("JPY_PARENT_PID")
    monkeypatch.setenv("TERM", "dumb")
    assert not can_show(terminal.stream)
