"""Options that take numbers refuse others before any work, and say which ones they take."""

from __future__ import annotations

import pytest

from verl_agentic import cli

_WHOLE, _POSITIVE = "must be a whole number of {} or more, got '{}'", "must be a number above 0, got '{}'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quickstart", "--eval-tasks", "0"], _WHOLE.format(1, 0)),
        (["quickstart", "--rl-steps", "-1"], _WHOLE.format(1, -1)),
        (["evaluate", "--samples", "0"], _WHOLE.format(1, 0)),
        (["judge", "probe", "--repeats", "0"], _WHOLE.format(1, 0)),
        (["reward", "audit", "x", "--limit", "0"], _WHOLE.format(1, 0)),
        (["prepare", "python_math", "--train", "-1"], _WHOLE.format(0, -1)),
        (["env", "serve", "x", "--port", "ten"], "must be a whole number from 0 to 65535, got 'ten'"),
        (["view", "x", "--port", "65536"], "must be a whole number from 0 to 65535, got '65536'"),
        (["data", "check", "x", "--jobs", "0"], _WHOLE.format(1, 0)),
        (["doctor", "--timeout", "0"], _POSITIVE.format(0)),
        (["doctor", "--timeout", "nan"], _POSITIVE.format("nan")),
    ],
)
def test_a_number_out_of_range_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
