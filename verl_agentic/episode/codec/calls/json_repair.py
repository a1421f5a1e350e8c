"""Tolerant reading of JSON that a model almost got right; only on request, because it hides mistakes from training."""

from __future__ import annotations

from typing import Any

from verl_agentic.base.env_card import needs_extra


def repair_object(text: str) -> dict[str, Any] | None:
    """Returns the object that `text` was meant to be, or None when it is no attempt at one.

    Mends trailing commas, single quotes, missing closing braces, Python's literals, raw line breaks in strings, and
    a fence around the object.

    Raises:
        MissingDependencyError: `json-repair` is not installed.
    """
    try:
        value = _import_library().loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits, or nested too deeply
        return None
    return value if isinstance(value, dict) and value else None


def require_repair() -> None:
    """Fails early when tolerant reading is asked for and cannot be had.

    Raises:
        MissingDependencyError: `json-repair` is not installed.
    """
    _import_library()


def _import_library() -> Any:
    with needs_extra("repair", what="repairing calls"):
        import json_repair
    return json_repair
