"""Checks of a GPU keep what they measured, and none hides another; here with fake checks."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

_FOLDER = Path(__file__).parents[2] / "benchmarks"
_BODIES = {
    "good": "check.judge('gap', 0.5, max_value=1)",
    "misses": "check.judge('gap', 1.5, max_value=1); check.judge('speed', 3, min_value=2)",
    "misses_from_below": "check.judge('speed', 1, min_value=2)",
    "gives_nan": "check.judge('gap', float('nan'), max_value=1)",
    "gives_nan_from_below": "check.judge('speed', float('nan'), min_value=1)",
    "raises": "check.judge('gap', 0.5, max_value=1); raise RuntimeError('the device is lost')",
    "dies": "check.note({'a': 1}); import os; os.kill(os.getpid(), 9)",
    "is_not_importable": "import no_such_module",
    "judges_speed": "check.judge('speed', 1, min_value=2, only_gpu=True)",
    "skips": "check.skip('no model; run the command')",
    "skips_after_a_miss": "check.judge('gap', 2, max_value=1); check.skip('no model; run the command')",
    "measures": "check.note({'speed': 3})",
    "computes": "sum(range(10**7))",
}


def load_script() -> Any:
    """Returns the script as a module."""
    spec = importlib.util.spec_from_file_location("gpu", _FOLDER / "gpu.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(_FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_FOLDER))
    return module


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script with fake checks."""
    script = load_script()
    monkeypatch.setattr(script, "CHECKS", tmp_path)
    monkeypatch.setattr(script, "SHARES", dict.fromkeys(_BODIES, 1))
    for name, body in _BODIES.items():
        write_check(tmp_path, name, body)
    return script


def write_check(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text("def run(check):\n" + textwrap.indent(body, "    ") + "\n")


def run(gpu: Any, out: Path, *names: str, minutes: float = 2) -> int:
    only = ["--only", *names] if names else []
    return gpu.main(["--device", "cpu", "--out", str(out), "--minutes", str(minutes), *only])


@pytest.mark.slow
def test_every_check_has_its_own_verdict_and_one_that_breaks_hides_no_other(
    gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(gpu, tmp_path / "out") == 1
    results = {name: json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in _BODIES}
    assert {name: result["status"] for name, result in results.items()} == {
        "good": "passed",
        "misses": "missed",
        "misses_from_below": "missed",
        "gives_nan": "missed",
        "gives_nan_from_below": "missed",
        "raises": "failed",
        "dies": "failed",
        "is_not_importable": "failed",
        "judges_speed": "not tested",
        "skips": "skipped",
        "skips_after_a_miss": "missed",
        "measures": "not tested",
        "computes": "not tested",
    }
    assert results["computes"]["cpu_seconds"] > results["good"]["cpu_seconds"] > 0
    assert [verdict["ok"] for verdict in results["misses"]["verdicts"]] == [False, True]
    assert results["raises"]["verdicts"][0]["ok"] and "the device is lost" in results["raises"]["error"]
    assert results["dies"]["figures"] == {"a": 1}
    printed = capsys.readouterr().out
    assert all(f"== {name}: {result['status']}" in printed for name, result in results.items())
    assert "not tested speed: 1 (>= 2" in printed and "no model; run the command" in printed


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "code"), [("good", 0), ("misses", 1), ("judges_speed", 0), ("skips", 0)])
def test_only_a_bound_that_is_missed_makes_the_exit_code_1(gpu: Any, tmp_path: Path, name: str, code: int) -> None:
    assert run(gpu, tmp_path / "out", name) == code
    assert [path.stem for path in (tmp_path / "out").glob("*.json")] == [name]


@pytest.mark.nightly
def test_a_check_that_is_out_of_time_keeps_its_figures_and_leaves_no_process(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu.SHARES, "good", 9)
    body = f"""
        import subprocess, time
        check.note({{"speed": 7}})
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        check.judge("gap", 0.5, max_value=1)
        time.sleep(300)"""
    write_check(tmp_path, "measures", textwrap.dedent(body))
    assert run(gpu, tmp_path / "out", "measures", "good", minutes=0.5) == 1
    result, other = (json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in ("measures", "good"))
    assert (result["status"], result["figures"]) == ("cut", {"speed": 7})
    assert result["verdicts"][0]["ok"] and "--minutes" in result["error"]
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert other["status"] == "passed"


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_result_of_an_earlier_run_does_not_pass_for_one_of_this_run(gpu: Any, tmp_path: Path) -> None:
    assert run(gpu, tmp_path / "out", "good") == 0
    write_check(tmp_path, "good", "raise RuntimeError('broken since')")
    assert run(gpu, tmp_path / "out", "good") == 1
    assert json.loads((tmp_path / "out" / "good.json").read_text())["verdicts"] == []


def test_an_unknown_check_is_refused_with_the_known_ones(gpu: Any, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as error:
        run(gpu, tmp_path / "out", "good", "trainr")
    assert error.value.code == 2
    printed = capsys.readouterr().err
    assert "trainr" in printed and "judges_speed" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("minutes", [0, -1, float("nan")])
def test_a_time_limit_is_positive(gpu: Any, tmp_path: Path, minutes: float, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        run(gpu, tmp_path / "out", minutes=minutes)
    assert "--minutes must be positive" in capsys.readouterr().err


def test_every_check_has_a_file_a_share_of_the_time_and_a_line_of_help(tmp_path: Path) -> None:
    script = load_script()
    names = {line.split("|")[1].strip() for line in script.__doc__.splitlines() if line.startswith("| ")} - {"check"}
    assert {path.stem for path in script.CHECKS.glob("*.py")} == names == set(script.SHARES)


def test_steps_of_a_training_are_followed_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_FOLDER))
    check_type = importlib.import_module("_gpu_check").Check
    training = importlib.import_module("_gpu_training").Training(tmp_path / "run")
    check = check_type(name="quickstart", device="cpu", out=tmp_path)
    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)

    def log(*lines: dict[str, Any], unfinished: str = "") -> None:
        rows = [json.dumps({"step": number, "data": line}) + "\n" for number, line in enumerate(lines)]
        (logs / "rl_0.jsonl").write_text("".join(rows) + unfinished)
        training.follow(check)

    (logs / "rl.log").touch()
    log(validation := {"val/acc": 0.2})
    assert math.isnan(training.first_step_s) and math.isnan(training.max_of("gap")) and not check.figures
    first, second, third = ({"timing_s/step": time, "gap": gap} for time, gap in ((9.0, 0.1), (2.0, 0.3), (4.0, 0.2)))
    log(validation, first, unfinished='{"step": 2, "da')
    assert training.first_step_s >= 0 and check.figures == {"timing_s/step": [9.0]}
    assert math.isnan(training.median_of("timing_s/step")), "the first step warms up"
    log(validation, first, second, third)
    assert training.median_of("timing_s/step") == 3.0 and training.max_of("gap") == 0.3
    assert json.loads((tmp_path / "quickstart.json").read_text())["figures"] == {"timing_s/step": [9.0, 2.0, 4.0]}
    log(validation, first, second | {"gap": math.nan}, third, third)
    assert math.isnan(training.max_of("gap"))


@pytest.mark.nightly
def test_a_cpu_rehearses_all_checks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(_FOLDER / "gpu.py"), "--device", "cpu", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6_000:]
