"""Levels of isolation."""

from __future__ import annotations

import enum

from verl_agentic.base.errors import ConfigError


class Isolation(enum.IntEnum):
    """Isolation of code from the machine; higher is safer."""

    NONE = 0
    """No requirement."""
    PROCESS_LIMITS = 1
    """Limits against accidents; same user, files and network."""
    LANDLOCK = 2
    """Kernel rules deny files, network, signals and memory of others; file names are visible."""
    NAMESPACES = 3
    """Separate file system, processes, users and network, on the same kernel."""
    CONTAINER = 3
    """The same kernel boundary as `NAMESPACES`."""
    OWN_KERNEL = 4
    """Another kernel between the code and the machine's: gVisor, a virtual machine."""

    @classmethod
    def parse(cls, value: Isolation | str) -> Isolation:
        """Returns the level of a name such as `namespaces`. Raises ConfigError for an unknown name."""
        try:
            return value if isinstance(value, Isolation) else cls[value.upper()]
        except (KeyError, AttributeError):
            names = ", ".join(name.lower() for name in cls.__members__)
            raise ConfigError(f"an isolation is one of {names}, got {value!r}") from None


DEFAULT_ISOLATION = Isolation.LANDLOCK
"""The minimum for unreviewed code."""
