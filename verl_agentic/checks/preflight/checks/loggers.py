"""Loggers of metrics."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_PACKAGES = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "vemlp_wandb": "volcengine_ml_platform",
    "tensorboard": "tensorboard",
    "clearml": "clearml",
    "trackio": "trackio",
}


def loggers(run: PlannedRun) -> list[Finding]:
    """Returns loggers that are unknown to verl, cannot be imported, or lack a login."""
    named = run.get("trainer.logger", [])
    names = [named] if isinstance(named, str) else list(named)
    registered_loggers = run.registered.get("logger", frozenset())
    findings = []
    if unknown := sorted(name for name in names if registered_loggers and name not in registered_loggers):
        findings.append(
            fail(
                f"trainer.logger has names that verl does not know, got {unknown}", f"use {sorted(registered_loggers)}"
            )
        )
    for name in names:
        package = _PACKAGES.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            findings.append(
                fail(f"trainer.logger={name} needs the package {package}, which is not installed",
                     f"pip install {package}, or set trainer.logger=[console]")
            )  # fmt: skip
        elif name == "wandb" and not _has_wandb_login():
            findings.append(warn("wandb has no API key here", "set WANDB_API_KEY or WANDB_MODE"))
    return findings or [ok(", ".join(names) or "no logger")]


def _has_wandb_login() -> bool:
    if {"WANDB_API_KEY", "WANDB_MODE"} & set(os.environ):
        return True
    netrc = Path.home() / ".netrc"
    return netrc.is_file() and "wandb" in netrc.read_text(errors="ignore")
