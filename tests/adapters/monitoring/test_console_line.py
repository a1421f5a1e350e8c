"""The line of a step on the console."""

from __future__ import annotations

import pytest
from verl.utils.logger.aggregate_logger import LocalLogger

from verl_agentic.observe.live.step_line import format_line
from verl_agentic.verl.extensions.monitoring.console_line import short_console

METRICS = {
    "episode/acc": 0.625,
    "critic/score/mean": 0.5,
    "batch/zero_signal_group_frac": 0.25,
    "timing_s/step": 21.34,
    "perf/mfu/actor": 0.1,
    "health/starved": 1.0,
    "health/truncation": 0.0,
}


def test_a_line_has_the_numbers_that_there_are_and_the_alarms_that_are_raised() -> None:
    line = format_line(METRICS, step=3, num_steps=12)
    assert line == (
        "step:3 of 12 | acc 0.62 | reward 0.50 | groups without signal 25% | seconds 21.3 | alarms: starved"
    )


def test_a_validation_is_shown_with_the_names_of_its_data() -> None:
    assert format_line({"val-core/everyday/acc/mean@1": 0.3}, step=0, num_steps=12).endswith("everyday/acc/mean@1 0.30")


def test_only_a_training_with_a_log_prints_short_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logger = LocalLogger()
    with short_console(num_steps=12):
        logger.log(METRICS, 3)
        logger.log({"train/loss": 2.5}, 3)
    logger.log(METRICS, 4)
    short, other, after = capsys.readouterr().out.splitlines()
    assert "mfu" not in short and "train/loss:2.5" in other and "perf/mfu/actor:0.1" in after
