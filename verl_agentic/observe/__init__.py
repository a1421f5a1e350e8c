"""Reports on runs: alarms, diagnosis, viewer, signs of reward hacking.

An extension. `load(run_dir)` returns a run's trajectories as a data frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load(run_dir: Path | str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns a run's trajectories; see `log.reader.load`."""
    from verl_agentic.log import reader  # pyarrow takes a while to import

    return reader.load(run_dir, columns)
