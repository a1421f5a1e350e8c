"""Every key of every section refuses what its declaration excludes, and names itself."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import verl_agentic
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Bounds, Settings, hints_of, read_settings


def list_sections() -> list[type[Settings]]:
    root = Path(verl_agentic.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "(Settings)" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(("verl_agentic", *path.relative_to(root).with_suffix("").parts)))
    sections, new = list[type[Settings]](), [Settings]
    while new:
        new = [cls for parent in new for cls in parent.__subclasses__() if cls.__module__.startswith("verl_agentic.")]
        sections += new
    return sections


def wrong_values(kind: Any, bounds: Bounds) -> Iterator[Any]:
    """Yields values of another type, and numbers just out of bounds."""
    kinds = {kind, *get_args(kind)}
    if not kinds & {Any, object, Path}:
        yield object()
    if kinds & {int, float} and kinds <= {int, float, type(None)}:
        yield from ("1", math.nan) if bool in kinds else ("1", math.nan, True)
        yield from (limit for limit in (bounds.min - 1, bounds.max + 1) if math.isfinite(limit))
        yield from (limit for limit in (bounds.above, bounds.below) if math.isfinite(limit))


def is_refused(cls: type[Settings], values: dict[str, Any], name: str) -> bool:
    try:
        read_settings(cls, values, section="s")
    except ConfigError as error:
        return name in str(error)
    return False


def test_every_key_refuses_other_types_and_numbers_out_of_bounds_by_its_name() -> None:
    checked, accepted = 0, []
    for cls in list_sections():
        assert is_refused(cls, {"no_such_key": 1}, "no_such_key"), cls
        for field in dataclasses.fields(cls):  # pyright: ignore
            if not field.init or field.metadata.get("read") is not None:
                continue
            for value in wrong_values(hints_of(cls)[field.name], field.metadata.get("bounds") or Bounds()):
                checked += 1
                if not is_refused(cls, {field.name: value}, f"s.{field.name}"):
                    accepted.append(f"{cls.__name__}.{field.name}={value!r}")
    assert checked > 800 and not accepted
