"""How far a sandbox keeps code from the machine."""

from __future__ import annotations

import enum

from verl_agentic.errors import ConfigError


class Isolation(enum.IntEnum):
    """How far the code is kept from the machine; the higher, the safer."""

    NONE = 0
    """Nothing is asked for."""
    PROCESS_LIMITS = 1
    """Limits against accidents; same user, files and network."""
    LANDLOCK = 2
    """Rules of the kernel keep files, network, signals and memory of others out of reach; file names can be seen."""
    NAMESPACES = 3
    """File system, processes, users and network of its own, on the same kernel."""
    CONTAINER = 3
    """The same kernel boundary as `NAMESPACES`."""
    OWN_KERNEL = 4
    """Between the code and the machine's kernel stands another one: gVisor, a virtual machine."""

    @classmethod
    def parse(cls, value: Isolation | str) -> Isolation:
        """Returns the level of a name such as `namespaces`.

        Raises:
            ConfigError: there is no such level.
        """
        try:
            return value if isinstance(value, Isolation) else cls[value.upper()]
        except (KeyError, AttributeError):
            names = ", ".join(name.lower() for name in cls.__members__)
            raise ConfigError(f"an isolation is one of {names}, got {value!r}") from None


DEFAULT_ISOLATION = Isolation.LANDLOCK
"""The weakest that is meant for code that nobody has read."""
