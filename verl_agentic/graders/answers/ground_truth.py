"""Ground truths that are objects, as such or as JSON text (for tables with one schema)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.errors import DataError


def object_of(ground_truth: Any, *, of: str) -> Mapping[str, Any]:
    """Returns a ground truth that is an object.

    Args:
        ground_truth: an object, or JSON text of one.
        of: the component, for the error.

    Raises:
        DataError: it is not an object.
    """
    value = ground_truth
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise DataError(
            f"the ground truth of {of} must be an object, or JSON text of one, got {str(ground_truth)[:200]!r}; "
            "fix the row"
        )
    return value
