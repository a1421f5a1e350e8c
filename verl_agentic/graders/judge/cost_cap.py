"""A cap on the cost of judges: one total of all processes of a machine, in a file that a resumed run continues."""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path

from verl_agentic.base.deadlines import in_thread

logger = logging.getLogger(__name__)
_WARNED: set[tuple[str, float]] = set()


class CostCap:
    """A maximum cost, and the file with the cost so far.

    The check precedes a request and its cost is added after it. So requests that are in flight when the cap is reached
    are still paid.
    """

    def __init__(self, path: Path, *, max_cost: float) -> None:
        """Makes the folder of the file.

        Args:
            path: on a local disk, the same for all processes of a machine. It holds one number.
            max_cost: of this machine, in the currency of the prices.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._max_cost = max_cost

    async def find_pause(self) -> str | None:
        """Returns why the judges are paused, and logs it once per process; None if they may be asked."""
        cost = await in_thread(self._add, 0.0)
        if cost < self._max_cost:
            return None
        reason = (
            f"the judges are paused: they cost {cost:.6g}, and max_cost is {self._max_cost:.6g} on this machine; raise "
            f"max_cost to go on ({self._path} has the cost so far)"
        )
        if (warning_key := (str(self._path), self._max_cost)) not in _WARNED:
            _WARNED.add(warning_key)
            logger.warning("%s", reason)
        return reason

    async def add(self, cost: float) -> None:
        """Adds the cost of a request."""
        if cost:
            await in_thread(self._add, cost)

    def _add(self, cost: float) -> float:
        """Returns the cost so far, with this one."""
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            total = float(file.read() or 0.0) + cost
            if cost:
                # Written in place, because after a rename others would hold locks on the old file.
                file.truncate(0)
                file.write(repr(total))
        return total
