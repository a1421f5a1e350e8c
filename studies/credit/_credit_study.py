"""A study: trainings of several methods and seeds from one warm start of each task, in one folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from _credit_methods import Method
from _credit_runs import Size, Trial, WarmStart, read_result
from _report import progress

from verl_agentic.cpu.quickstart.child_process import ChildFailedError

Planned = tuple[str, Method, int]
"""Recipe, method and seed."""


class Collected(Protocol):
    """The results of a study."""

    def add(self, result: dict[str, Any]) -> None:
        """Adds one; the same training again replaces the first."""
        ...

    def markdown(self) -> str:
        """Returns the table."""
        ...

    def drawings(self) -> Mapping[str, str]:
        """Returns SVG files by name."""
        ...


class Study:
    """All trainings, in one folder. Finished ones are not repeated."""

    def __init__(self, name: str, out: Path, *, sizes: Mapping[str, Size], results: Collected) -> None:
        """Names the folder; nothing is done yet.

        Args:
            name: of the benchmark.
            out: the folder.
            sizes: recipe -> amount of work. A recipe is the name of a bundled one, or the path of its folder.
            results: gets the result of every training.
        """
        self.name, self.out = name, out
        self._sizes, self._results = sizes, results
        self._starts: dict[str, dict[str, Any]] = {}

    def run(self, plan: Iterable[Planned]) -> None:
        """Trains what has not been trained, and writes the table after each."""
        for number, (recipe, method, seed) in enumerate(plan, start=1):
            progress(f"training {number}: {Path(recipe).name}, {method.name}, seed {seed}")
            try:
                self._results.add(self._train(recipe, method, seed))
            except ChildFailedError as cause:  # the others are worth having; the same command tries it again
                progress(f"failed: {cause}")
            self.write()

    def read(self) -> None:
        """Reads the results of all finished trainings."""
        for path in sorted(self.out.glob("*/*/result.json")):
            self._results.add(read_result(path))

    def write(self) -> None:
        """Writes the table and the drawings."""
        self.out.mkdir(parents=True, exist_ok=True)
        command = " ".join([f"python {sys.argv[0]}", *sys.argv[1:]])
        (self.out / "table.md").write_text(f"```bash\n{command}\n```\n\n{self._results.markdown()}\n")
        for name, svg in self._results.drawings().items():
            (self.out / f"{name}.svg").write_text(svg)

    def start(self, recipe: str) -> Path:
        """Returns the folder of the warm start of a recipe, which is made if it is missing."""
        folder = self.out / "start" / Path(recipe).name
        if recipe not in self._starts:
            self._starts[recipe] = WarmStart(folder, recipe, self._sizes[recipe]).make()
        return folder

    def _train(self, recipe: str, method: Method, seed: int) -> dict[str, Any]:
        start = self.start(recipe)
        folder = self.out / Path(recipe).name / f"{method.name}_{seed}"
        return Trial(folder, recipe, self._sizes[recipe], method=method, seed=seed, start=start).make()
