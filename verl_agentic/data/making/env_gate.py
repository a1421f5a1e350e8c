"""Runs the code of an environment of unknown origin in a sandbox: makes its example rows, and validates it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.errors import ConfigError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.process_pool import shared_pool

BACKENDS = ("namespaces", "landlock")
EXAMPLES = "example.jsonl"
_LOAD = (
    "import sys; from pathlib import Path; from verl_agentic.cli.env.new import write_examples; "
    "write_examples(Path(sys.argv[1]))"
)
_VALIDATE = (
    "import sys; from verl_agentic.cli import main; "
    "sys.exit(main(['env', 'validate', './' + sys.argv[1], '--count', sys.argv[2], '--json']))"
)


@dataclass(frozen=True, kw_only=True)
class EnvGate:
    """A sandbox with the Python packages of this process. Nothing of the code is imported here."""

    backend: str = "namespaces"
    load_s: float = 30.0
    """Maximum time of importing a package and making its examples, in seconds."""
    validate_s: float = 300.0
    """Maximum time of `env validate`, in seconds."""
    memory_mb: int = 8_192
    """Maximum address space of a process, in MiB."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ConfigError(
                f"the sandbox must show the packages of this process, got {self.backend!r}; use one of {BACKENDS}"
            )

    async def examples(self, name: str, files: Mapping[str, str]) -> tuple[str | None, str]:
        """Returns why the package of these files makes no examples, or None; and its `example.jsonl`."""
        place = f"{name}/{EXAMPLES}"
        result = await self._run([_LOAD, name], files, wall_s=self.load_s, outputs=[place])
        if reason := _no_result(result, self.load_s):
            return reason, ""
        return None, result.files[place].decode(errors="replace") if place in result.files else ""

    async def fault(self, name: str, files: Mapping[str, str], *, count: int) -> str | None:
        """Returns why `env validate` with `count` new rows refuses the package of these files, or None."""
        result = await self._run([_VALIDATE, name, str(count)], files, wall_s=self.validate_s)
        try:
            checks = json.loads(result.stdout.strip().rpartition("\n")[2])["checks"]
            failed = [f"{check['name']}: {check['problems'][0]}" for check in checks if not check["ok"]]
        except (ValueError, TypeError, LookupError):
            checks, failed = [], []
        if failed:
            return "; ".join(failed)
        return _no_result(result, self.validate_s) or (None if checks else "no verdict: the code ended the validation")

    async def _run(
        self,
        arguments: Sequence[str],
        files: Mapping[str, str],
        *,
        wall_s: float,
        outputs: Sequence[str] = (),
    ) -> CommandResult:
        packages = _packages()
        inside = {path: f"/packages/{number}" for number, path in enumerate(packages)}
        given: list[Any] = [*inside.items()] if self.backend == "namespaces" else packages
        pool = shared_pool(self.backend, at_least=None, read_only=given)
        command = Command(
            argv=["python", "-c", *arguments],
            files={f"{arguments[1]}/{path}": text.encode() for path, text in files.items()},
            outputs=outputs,
            env={"PYTHONPATH": ":".join([*inside.values(), *packages]), "OMP_NUM_THREADS": "1"},
        )
        limits = Limits(
            wall_s=wall_s,
            cpu_s=int(wall_s) + 1,
            memory_mb=self.memory_mb,
            processes=256,
            open_files=1_024,
            output_bytes=1 << 20,
        )
        return await pool.run(command, limits=limits)


def _packages() -> list[str]:
    """Returns the folders with this package, verl and all that they import."""
    own = str(Path(__file__).parents[3])
    return list(dict.fromkeys([own, *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))]))


def _no_result(result: CommandResult, wall_s: float) -> str | None:
    if result.timed_out:
        return f"no result in time: it ran for more than {wall_s:g} s"
    if result.ok:
        return None
    lines = result.stderr.strip().splitlines() or [result.signal_name or f"exit code {result.exit_code}"]
    return f"it does not run: {lines[-1][:300]}"
