"""What a user says about a run's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The section `rollout.custom.agentic.log`."""

    dir: str | None = None
    """Folder of the run; None writes nothing."""
    file_mb: float = 256.0
    """A file is closed, and the next one begun, at this size in MiB."""
    total_gb: float | None = None
    """The oldest files of a table are removed when all of its files are larger than this, in GiB; None keeps all. Every
    process keeps the file that it writes, so that less than `file_mb` for each of them is never reached."""

    def __post_init__(self) -> None:
        for name in ("file_mb", "total_gb"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ConfigError(f"{name} of the trajectory log must be positive, got {value!r}")
        if self.total_gb is not None and self.total_gb * 1024 < self.file_mb:
            raise ConfigError(
                f"total_gb of the trajectory log must hold a file of {self.file_mb} MB, got {self.total_gb}; raise it"
            )

    @classmethod
    def from_mapping(cls, values: Any, *, section: str) -> LogOptions:
        """Returns the options of a config section.

        Raises:
            ConfigError: an unknown key, or a value out of range.
        """
        return read_settings(cls, values, section=section)
