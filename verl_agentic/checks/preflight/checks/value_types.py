"""Types of the values of verl's keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.base.settings import check_value
from verl_agentic.checks.preflight.checks.unknown_keys import FREE
from verl_agentic.checks.preflight.planned_run import MISSING, PlannedRun

_WITHOUT_DEFAULT = {
    "algorithm.rollout_correction.rollout_is_threshold": float | str,
    "algorithm.rollout_correction.rollout_rs_threshold": float | str,
    "data.seed": int,
    "data.val_batch_size": int,
    "data.gen_batch_size": int,
    "trainer.max_actor_ckpt_to_keep": int,
    "trainer.max_critic_ckpt_to_keep": int,
    "trainer.total_training_steps": int,
    "trainer.default_hdfs_dir": str,
    "trainer.resume_from_path": str,
    "trainer.rollout_data_dir": str,
    "trainer.validation_data_dir": str,
}
"""Keys without a type in verl's classes that are null in its configuration, or take more than their default's type."""
_FRACTIONS = {"num_warmup_batches", "esi_redundant_time", "horizon", "ray_wait_register_center_timeout"}
"""Keys with a whole number as default that also accept other numbers."""


def value_types(run: PlannedRun) -> list[Finding]:
    """Returns values with neither the type of verl's default nor that of its config class, and ranges that are read as
    numbers. verl itself checks few of them."""
    findings = [fail(message, "add the quotes") for message in run.problems.get("values", ())]
    findings += [
        fail(f"{path} must be {_describe_type(expected)}, got {value!r}", "change the value")
        for path, value, expected in _iter_wrong_values(run, run.config, run.defaults, "")
        if not any(path == allowed or path.startswith(f"{allowed}.") for allowed in run.allowed)
    ]
    return findings or [ok("values have the types of verl's own")]


def _iter_wrong_values(run: PlannedRun, tree: Any, defaults: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    hints = run.hints.get(path, {})
    for key, value in tree.items():
        place = f"{path}.{key}" if path else str(key)
        default = defaults.get(key) if isinstance(defaults, Mapping) else None
        if place in FREE or value in (None, MISSING) or value == default or str(key) == "_target_":
            continue
        if isinstance(value, Mapping) and (default is None or isinstance(default, Mapping)):
            yield from _iter_wrong_values(run, value, default or {}, place)
            continue
        hint = hints.get(key, _WITHOUT_DEFAULT.get(place))
        if hint is None and default in (None, MISSING):
            continue
        if not _fits_type(value, hint, default, key=str(key)):
            yield place, value, default if default not in (None, MISSING) else hint


def _fits_type(value: Any, hint: Any, default: Any, *, key: str) -> bool:
    if hint is not None:
        try:
            check_value(value, hint, name=key)
            return True
        except ConfigError:
            pass  # verl's annotations are not always those of its own defaults
    return default not in (None, MISSING) and _is_like(value, default, key=key)


def _is_like(value: Any, default: Any, *, key: str) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool) or value in (0, 1)
    if isinstance(default, int | float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        needs_whole = isinstance(default, int) and key not in _FRACTIONS
        return is_number and (not needs_whole or float(value).is_integer())
    if isinstance(default, Mapping):
        return isinstance(value, Mapping)
    # verl accepts one name instead of a list of names.
    return isinstance(value, str) or (isinstance(value, Sequence) and not isinstance(value, Mapping))


def _describe_type(expected: Any) -> str:
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    kind = expected if isinstance(expected, type) else type(expected)
    return kinds.get(kind, "a section of keys" if issubclass(kind, Mapping) else str(expected))
