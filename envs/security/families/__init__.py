"""Families of weak functions. Each draws functions with one kind of weakness."""

from collections.abc import Mapping

from .access import bounds_check, partial_comparison, path_traversal, size_overflow
from .base import Draw, WeakFunction
from .injection import delimiter_injection, format_string, sql_injection, unsafe_loading

SEEN: Mapping[str, Draw] = {
    draw.__name__: draw
    for draw in (path_traversal, sql_injection, unsafe_loading, bounds_check, format_string, size_overflow)
}
"""Name -> family."""
HELD_OUT: Mapping[str, Draw] = {draw.__name__: draw for draw in (partial_comparison, delimiter_injection)}
"""Families that no training row has."""

__all__ = ["HELD_OUT", "SEEN", "Draw", "WeakFunction"]
