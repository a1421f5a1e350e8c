from __future__ import annotations

import dataclasses
import json
import math

from verl_agentic.observe.health.health_finding import HealthFinding

FINDING = HealthFinding(
    step=7,
    check="gradient",
    level="stop",
    status="fail",
    found="it is nan",
    evidence={"norm": 2.5, "metric": "x"},
    advice="resume",
)


def test_a_line_of_the_file_has_these_keys() -> None:
    assert json.dumps(FINDING.to_dict()) == (
        '{"step": 7, "name": "gradient", "level": "stop", "message": "it is nan", '
        '"evidence": {"norm": 2.5, "metric": "x"}, "advice": "resume"}'
    )


def test_numbers_that_json_cannot_hold_become_text() -> None:
    finding = dataclasses.replace(FINDING, evidence={"norm": math.nan, "loss": -math.inf})
    assert json.loads(json.dumps(finding.to_dict(), allow_nan=False))["evidence"] == {"norm": "nan", "loss": "-inf"}


def test_as_text_it_is_one_line_with_all_that_a_user_needs() -> None:
    assert str(FINDING) == "health/gradient at step 7: it is nan. Try: resume"
