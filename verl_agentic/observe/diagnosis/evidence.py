"""The evidence that checks of a run read."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.diagnosis.record_metrics import fill_metrics
from verl_agentic.observe.diagnosis.run_records import RunRecords, is_number
from verl_agentic.observe.diagnosis.series import Series


class RunEvidence(RunRecords):
    """The files of a run, and the metrics that were logged or can be computed."""

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The metrics, and those that were not logged but follow from trajectories; see `fill_metrics`."""
        return fill_metrics(self)

    @cached_property
    def history(self) -> History:
        """The same as the history that alarms read."""
        return History(
            ({n: v for n, v in row.items() if isinstance(v, int | float)} for row in self.steps), is_over=True
        )

    def series(self, *names: str) -> Series:
        """Returns (step, value) of the finite values of the first of these metrics that was logged or computed."""
        for name in names:
            points = [(row["step"], float(row[name])) for row in self.steps if is_number(row.get(name))]
            if points:
                return points
        return []

    def names(self, prefix: str) -> list[str]:
        """Returns the metrics with this prefix."""
        return sorted({name for row in self.steps for name in row if name.startswith(prefix)})
