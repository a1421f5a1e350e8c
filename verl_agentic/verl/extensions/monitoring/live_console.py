"""The live view of a run in the terminal of its driver."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

_VARIABLE = "VERL_AGENTIC_LIVE_VIEW"
"""Environment variable of the processes whose driver shows the live view. Workers of a cluster that runs already lack
it: their trainer prints its lines as well."""


def has_live_view() -> bool:
    """Tells whether the driver shows the live view of this process's run."""
    return _VARIABLE in os.environ


def show_in_terminal(run: Any, folder: Path) -> Any:
    """Wraps verl's `run_ppo` to show the live view while it runs, if stdout is a terminal that can."""

    @functools.wraps(run)
    def run_and_show(*args: Any, **kwargs: Any) -> Any:
        from verl_agentic.observe.live.live_view import can_show, show_run

        if has_live_view() or not can_show(sys.stdout):
            return run(*args, **kwargs)
        os.environ[_VARIABLE] = "1"
        try:
            with show_run(folder, sys.stdout):
                return run(*args, **kwargs)
        finally:
            del os.environ[_VARIABLE]

    return run_and_show
