"""SandboxFusion's `/run_code`: request, answer, and conversions of results.

Our extensions, which other services ignore: the request's `extension` (argv, env, limits), and in `run_result` the
fields `cpu_s`, `peak_memory_mb`, `oom`, `stdout_truncated` and `stderr_truncated`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pydantic import BaseModel, Field

from verl_agentic.base.errors import ConfigError, SandboxError
from verl_agentic.sandbox.inside.kept_output import head_and_tail
from verl_agentic.sandbox.interface import CommandResult

SERVICE = "verl-agentic"
"""Name of our own server in `/health`."""
_MAX_BYTES_OF_A_BYTE, _MARKER_BYTES = 3, 64  # an invalid byte becomes a character of 3 bytes
_EXTRAS = ("cpu_s", "peak_memory_mb", "oom", "stdout_truncated", "stderr_truncated")


class Extension(BaseModel):
    """Fields that only our own server supports."""

    argv: list[str] | None = None
    """Runs a program instead of the code."""
    env: dict[str, str] = {}
    limits: dict[str, Any] = {}
    """Fields of `sandbox.interface.Limits` except wall time and memory, which the contract has."""


class RunRequest(BaseModel):
    """A request, with the contract's names and defaults."""

    code: str
    language: str
    stdin: str | None = None
    compile_timeout: float = Field(10.0, gt=0)
    run_timeout: float = Field(10.0, gt=0)
    memory_limit_MB: int = -1
    files: dict[str, str | None] = {}
    """Path -> content in base64."""
    fetch_files: list[str] = []
    extension: Extension = Extension()

    def decoded_files(self) -> dict[str, bytes]:
        """Returns path -> content, without empty entries. Raises ConfigError if a content is not base64."""
        try:
            return {
                path: base64.b64decode(text, validate=True) for path, text in self.files.items() if text is not None
            }
        except binascii.Error as cause:
            raise ConfigError(f"files must be base64, got {cause}") from cause


def answer_of(result: CommandResult | None, *, compiled: CommandResult | None = None) -> dict[str, Any]:
    """Returns the answer for a compilation and a run; None if one did not happen."""
    is_well = result is not None and result.ok
    return {
        "status": "Success" if is_well else "Failed",
        "message": "",
        "compile_result": None if compiled is None else _part_of(compiled),
        "run_result": None if result is None else _part_of(result),
        "executor_pod_name": None,
        "files": {path: base64.b64encode(data).decode() for path, data in (result.files if result else {}).items()},
    }


def failure_of(message: str) -> dict[str, Any]:
    """Returns the answer for a sandbox that failed."""
    return {
        "status": "SandboxError",
        "message": message,
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
    }


def result_of(answer: Any, *, output_bytes: int) -> CommandResult:
    """Returns the result in an answer. Raises SandboxError if the sandbox failed, or the answer is invalid."""
    try:
        if answer["status"] == "SandboxError":
            raise SandboxError(f"the service's sandbox failed, got {answer.get('message') or answer}")
        part = answer.get("run_result") or answer["compile_result"]
        is_late = part["status"] == "TimeLimitExceeded"
        exit_code = part.get("return_code")
        stdout, stdout_is_cut = _cut_output(part, "stdout", output_bytes)
        stderr, stderr_is_cut = _cut_output(part, "stderr", output_bytes)
        return CommandResult(
            stdout=stdout,
            stderr=stderr,
            exit_code=(-9 if is_late else 1) if exit_code is None else int(exit_code),
            timed_out=is_late,
            oom=bool(part.get("oom", False)),
            stdout_truncated=stdout_is_cut or bool(part.get("stdout_truncated", False)),
            stderr_truncated=stderr_is_cut or bool(part.get("stderr_truncated", False)),
            wall_s=float(part.get("execution_time") or 0.0),
            cpu_s=float(part.get("cpu_s") or 0.0),
            peak_memory_mb=float(part.get("peak_memory_mb") or 0.0),
            files={path: base64.b64decode(text) for path, text in (answer.get("files") or {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise SandboxError(
            f"the service's answer is not one of run_code, got {str(answer)[:200]} ({type(cause).__name__}: {cause})"
        ) from cause


def _part_of(result: CommandResult) -> dict[str, Any]:
    return {
        "status": "TimeLimitExceeded" if result.timed_out else "Finished",
        "execution_time": result.wall_s,
        "return_code": None if result.timed_out else result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        **{name: getattr(result, name) for name in _EXTRAS},
    }


def _cut_output(part: dict[str, Any], name: str, limit: int) -> tuple[str, bool]:
    """Returns an output, cut unless the service has cut it, and whether it was cut here."""
    text = part.get(name) or ""
    data = text.encode("utf-8", "replace")
    if f"{name}_truncated" in part:
        limit = _MAX_BYTES_OF_A_BYTE * limit + _MARKER_BYTES
    cut_data = head_and_tail(data, limit)
    return (text, False) if cut_data is data else (cut_data.decode("utf-8", "replace"), True)
