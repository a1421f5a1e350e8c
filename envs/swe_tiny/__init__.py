"""Short functions with one wrong operator: the smallest form of `swe`, for models that learn on a laptop."""

from .demos import demonstrator, gold
from .env import make_env
from .rows import make_rows

__all__ = ["demonstrator", "gold", "make_env", "make_rows"]
