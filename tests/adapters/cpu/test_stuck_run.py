"""A run that gets stuck and then fails: its steps tell where the time went, its log what it waits for, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from patience import PATIENCE_S
from verl_runs import make_run

from verl_agentic.log.metric_log import read_metrics

pytestmark = pytest.mark.slow

# The rows of the first step start in half a second; later ones take their time, and turn out to be wrong.
_SLOW = """
import asyncio, pathlib
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Observation, Reward, StopReason

HERE = pathlib.Path(__file__).parent

class Env:
    tools = ()

    def __init__(self, row):
        self.row = row

    async def start(self):
        mark = HERE / f"{self.row.extra['index']}.row"
        if not mark.exists():
            mark.write_text("quick" if len(list(HERE.glob("*.row"))) < 4 else "slow")
        if mark.read_text() == "slow":
            await asyncio.sleep(5)
            raise DataError("the row names no table; mend it")
        await asyncio.sleep(0.5)
        return self.row.prompt

    async def step(self, action):
        return Observation(stop=StopReason.ENV_DONE)

    async def score(self, transcript):
        return Reward(float(len(transcript.actions[-1].text) % 2))

    async def close(self):
        pass

make_env = Env
"""


def test_a_stuck_run_says_what_it_waits_for_where_its_time_went_and_last_why_it_failed(tmp_path: Path) -> None:
    run, env, out = make_run(tmp_path), tmp_path / "slow_env", tmp_path / "out"
    env.mkdir()
    (env / "__init__.py").write_text(_SLOW)
    run.settings = {
        "agentic.env": env,
        "agentic.limits.max_turns": 1,
        "agentic.log.dir": out,
        "agentic.waiting": "{stuck_after_s: 2, report_every_s: 0.5}",
    }
    with run.start() as process:
        assert process.wait(PATIENCE_S) != 0
    log = (tmp_path / "metrics.log").read_text(errors="replace")

    (step,) = read_metrics(out)
    times = {name: value for name, value in step.items() if name.startswith("time/")}
    assert min(times.values()) >= 0 and sum(times.values()) == pytest.approx(step["timing_s/step"])
    assert times["time/env_start_s"] > 0.4 and times["time/generation_s"] > 0 and "time/rollout_s" not in times
    assert step["turn_time/0/generate_s"] > 0

    waits = (
        re.escape(f"(environment '{env}')") + r" has waited \d+ s for the start of its environment; it began \d+ s ago"
    )
    said = [line for line in log.splitlines() if "stuck: " in line and re.search(waits, line)]
    assert any(re.search(f"stuck: episode .*{waits}", line) for line in said), "its worker's own line"
    groups = "for 4 groups: 0 have ended, 0 failed, 4 are played, 8 of their episodes missing, 0 have not begun"
    assert any(f"{groups}. The oldest: episode " in line and ", pid " in line for line in said)

    told = log.split("verl_agentic: why the run failed")[1].strip().splitlines()
    first = next(line for line in told if line.startswith("1. "))
    assert first == "1. DataError: the row names no table; mend it"
    (ended,) = (line for line in told if line.startswith("Ended by"))
    assert "RuntimeError: Sync replay buffer selected terminal groups with no materializable" in ended
    assert set(told[-1]) == {"="}, "nothing comes after it"
    assert list(out.glob("errors-*.jsonl")) and not list(out.rglob("waiting-*.tmp"))
