"""Questions that need one or two searches in a corpus that a model cannot know."""

from .demos import demonstrator
from .env import make_env
from .gold import gold
from .rows import make_rows

__all__ = ["demonstrator", "gold", "make_env", "make_rows"]
