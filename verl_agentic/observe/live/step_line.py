"""About ten numbers of a training step: a line of the console, and a row of the live view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NUMBERS = (
    ("acc", "episode/acc", "{:.2f}"),
    ("reward", "critic/score/mean", "{:.2f}"),
    ("groups without signal", "batch/zero_signal_group_frac", "{:.0%}"),
    ("tokens", "response_length/mean", "{:.0f}"),
    ("turns", "episode/num_turns", "{:.1f}"),
    ("tool errors", "episode/tool_errors", "{:.1f}"),
    ("void", "episode/void", "{:.0%}"),
    ("entropy", "batch/entropy", "{:.2f}"),
    ("kl", "actor/ppo_kl", "{:.1e}"),
    ("gradient", "actor/grad_norm", "{:.2f}"),
    ("seconds", "timing_s/step", "{:.1f}"),
)
"""Label, metric and format."""
_VALIDATION = "val-core/"


def format_line(metrics: Mapping[str, Any], *, step: int, num_steps: int) -> str:
    """Returns the line of a step, or nothing if the metrics have none of the numbers that it shows."""
    parts = [f"{label} {number}" for label, number in format_numbers(metrics).items()]
    parts += format_validation(metrics)
    if alarms := list_alarms(metrics):
        parts.append(f"alarms: {', '.join(alarms)}")
    return " | ".join([f"step:{step} of {num_steps}", *parts]) if parts else ""


def format_numbers(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Returns the numbers that a step has, by their labels."""
    # The numbers of verl are of many types.
    return {label: shape.format(float(metrics[name])) for label, name, shape in _NUMBERS if name in metrics}


def format_validation(metrics: Mapping[str, Any]) -> list[str]:
    """Returns name and value of each result of a validation."""
    return [
        f"{name.removeprefix(_VALIDATION)} {float(value):.2f}"
        for name, value in metrics.items()
        if name.startswith(_VALIDATION)
    ]


def list_alarms(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the names of the alarms that are raised."""
    return [name.removeprefix("health/") for name, value in metrics.items() if name.startswith("health/") and value]
