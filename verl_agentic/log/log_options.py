"""Options of a run's log."""

from __future__ import annotations

from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting


class LogOptions(Settings):
    """The trajectory log: the section `agentic.log`."""

    dir: str | None = None
    """Folder of the run. A run with environments logs to `trainer.default_local_dir` if it is not set. None: nothing
    is logged."""
    file_mb: float = setting(256.0, above=0)
    """Size at which a file is closed and the next one begins, in MiB."""
    total_gb: float | None = setting(None, above=0)
    """Maximum size of all files of a table, in GiB. The oldest files are removed first. Every process keeps the file
    that it writes, so the table can take `file_mb` for each process. None: all files stay."""

    console: Literal["live", "short", "all"] = "live"
    """What a run with a log prints of each step. `short`: a line of about ten numbers. `live`: the same numbers of the
    last steps at the foot of the terminal, with progress and the last alarm; `short` where the output is no terminal.
    `all`: all metrics, as verl does."""

    def check_together(self) -> None:
        if self.total_gb is not None and self.total_gb * 1024 < self.file_mb:
            raise ConfigError(f"total_gb must hold a file of {self.file_mb} MiB, got {self.total_gb}; raise it")
