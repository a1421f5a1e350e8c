"""Runs the code of an environment of unknown origin in a sandbox: makes its example rows, and validates it.

The checks run in this process, and only the environment's code in the sandbox: code that could reach its validator
could write its own verdict.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import AgenticError, ConfigError
from verl_agentic.base.finding import log_only_from
from verl_agentic.data.making.boxed_env import EnvBox, boxed_package
from verl_agentic.evaluate.env_validation.script_codec import make_script_codec
from verl_agentic.evaluate.env_validation.validate_env import rows_to_validate, validate
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.sandbox.pools.process_pool import shared_pool

BACKENDS = ("namespaces", "landlock")
EXAMPLES = "example.jsonl"
_INSIDE = [f"/packages/{number}" for number in range(64)]
_LOAD = (
    "import sys; from pathlib import Path; from verl_agentic.evaluate.cli.env.new import write_examples; "
    "write_examples(Path(sys.argv[1]))"
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
        result = await self._run_python([_LOAD, name], files, wall_s=self.load_s, outputs=[place])
        if reason := _no_result(result, self.load_s):
            return reason, ""
        return None, result.files[place].decode(errors="replace") if place in result.files else ""

    async def fault(self, name: str, files: Mapping[str, str], *, count: int) -> str | None:
        """Returns why `env validate` with `count` new rows refuses the package of these files, or None."""
        backend = make_backend(self.backend, read_only=self._list_read_only())
        box = EnvBox(backend, limits=self._make_limits(self.validate_s), packages=self._list_paths())
        try:
            with tempfile.TemporaryDirectory() as folder:
                await asyncio.to_thread(Path(folder, EXAMPLES).write_text, files.get(EXAMPLES, ""), "utf-8")
                checking = self._validate_package(box, name, files, count=count, folder=Path(folder))
                return await asyncio.wait_for(checking, self.validate_s)
        except TimeoutError:
            return f"no result in time: it ran for more than {self.validate_s:g} s"
        except AgenticError as error:
            return str(error)
        finally:
            await box.close()

    async def _validate_package(
        self, box: EnvBox, name: str, files: Mapping[str, str], *, count: int, folder: Path
    ) -> str | None:
        await box.start(name, files)
        tokenizer, codec = make_script_codec("chat")
        package = boxed_package(box, env_id=name, folder=folder)
        with log_only_from(logging.CRITICAL, logger="verl_agentic"):
            rows = rows_to_validate(package, count=count)
            report = await validate(package, rows, codec=codec, tokenizer=tokenizer)
        failed = [f"{check.check}: {check.evidence['problems'][0]}" for check in report.checks if check.status != "ok"]
        return "; ".join(failed) or None

    async def _run_python(
        self,
        arguments: Sequence[str],
        files: Mapping[str, str],
        *,
        wall_s: float,
        outputs: Sequence[str] = (),
    ) -> CommandResult:
        pool = shared_pool(self.backend, at_least=None, read_only=self._list_read_only())
        command = Command(
            argv=["python", "-c", *arguments],
            files={f"{arguments[1]}/{path}": text.encode() for path, text in files.items()},
            outputs=outputs,
            env={"PYTHONPATH": ":".join(self._list_paths()), "OMP_NUM_THREADS": "1"},
        )
        return await pool.run(command, limits=self._make_limits(wall_s))

    def _list_read_only(self) -> list[Any]:
        """Returns the option `read_only` of the backend."""
        packages = _find_package_folders()
        return list(zip(packages, _INSIDE, strict=False)) if self.backend == "namespaces" else packages

    def _list_paths(self) -> list[str]:
        """Returns the folders of packages as the sandbox may see them."""
        packages = _find_package_folders()
        return [*(_INSIDE[: len(packages)]), *packages]

    def _make_limits(self, wall_s: float) -> Limits:
        return Limits(
            wall_s=wall_s,
            cpu_s=int(wall_s) + 1,
            memory_mb=self.memory_mb,
            processes=256,
            open_files=1_024,
            output_bytes=1 << 24,
        )


def _find_package_folders() -> list[str]:
    """Returns the folders with this package, verl and all that they import."""
    root = str(Path(__file__).parents[3])
    return list(
        dict.fromkeys([root, *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))])
    )


def _no_result(result: CommandResult, wall_s: float) -> str | None:
    if result.timed_out:
        return f"no result in time: it ran for more than {wall_s:g} s"
    if result.ok:
        return None
    lines = result.stderr.strip().splitlines() or [result.signal_name or f"exit code {result.exit_code}"]
    return f"it does not run: {lines[-1][:300]}"
