from __future__ import annotations

import json
import math

import pytest

from verl_agentic.diagnostics.health.health_finding import Finding
from verl_agentic.errors import DataError

FINDING = Finding(
    step=7, name="gradient", level="stop", message="it is nan", evidence={"norm": 2.5, "metric": "x"}, advice="resume"
)


def test_a_line_of_the_file_gives_the_finding_back() -> None:
    line = json.dumps({**FINDING.to_dict(), "time": 1.0})
    assert Finding.from_dict(json.loads(line)) == FINDING
    assert set(FINDING.to_dict()) == {"step", "name", "level", "message", "evidence", "advice"}


def test_numbers_that_json_cannot_hold_become_text() -> None:
    finding = Finding(1, "gradient", "warn", "", {"norm": math.nan, "loss": -math.inf}, "")
    assert json.loads(json.dumps(finding.to_dict(), allow_nan=False))["evidence"] == {"norm": "nan", "loss": "-inf"}


@pytest.mark.parametrize("change", [{"level": "off"}, {"evidence": None}])
def test_what_is_no_finding_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match="a finding must have"):
        Finding.from_dict({**FINDING.to_dict(), **change})
    with pytest.raises(DataError, match="a finding must have"):
        Finding.from_dict({"step": 1})


def test_as_text_it_is_one_line_with_all_that_a_user_needs() -> None:
    assert str(FINDING) == "health/gradient at step 7: it is nan. Try: resume"
