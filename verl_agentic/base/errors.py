"""The errors of this package, in one tree. Errors that concern one module are derived from these, and defined there.

    AgenticError
    ├── ConfigError              (ValueError)    what the user wrote cannot work
    │   └── MissingDependencyError (ImportError) an optional package is needed
    ├── DataError                (ValueError)    a row, checkpoint or file is not what it should be
    ├── PluginError              (RuntimeError)  the verl plugin did not load, or not completely
    ├── PolicyError              (RuntimeError)  the generation server failed
    ├── InfrastructureError      (RuntimeError)  so many episodes are void that a run must stop
    ├── StarvationError          (RuntimeError)  so few groups of episodes pass the gates that a run must stop
    ├── AuditError               (RuntimeError)  training rows differ from what the policy did
    ├── HealthError              (RuntimeError)  an alarm stopped the run
    ├── EnvError                 (RuntimeError)  an environment failed, not the policy
    │   ├── SandboxError                         the sandbox failed, not the code in it
    │   │   ├── SandboxUnavailableError          this machine, engine or service cannot give one
    │   │   └── SandboxBusyError                 too many wait for one already
    │   ├── SearchError                          the retriever failed, not the query
    │   │   └── SearchUnavailableError           it cannot be reached, is overloaded, or took too long
    │   ├── EnvUnavailableError                  the server of an environment cannot be reached, or lost its session
    │   └── EnvBusyError                         the server of an environment has no free session
    └── ScoringError             (RuntimeError)  a scorer failed; never a reward of 0

All of them pickle, because they cross process boundaries inside Ray.
"""

from __future__ import annotations

import errno
import traceback

from verl_agentic.base.places.error_places import describe_cause, iter_causes, locate_error

_OF_ARGUMENTS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_ERRNOS_OF_ARGUMENTS = frozenset(
    {
        *(errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.E2BIG, errno.EFBIG, errno.EDOM, errno.ERANGE),
        *(errno.EOVERFLOW, errno.EILSEQ, errno.ENOTEMPTY, errno.EXDEV, errno.ESPIPE, errno.ENOEXEC),
    }
)
"""Failures of the operating system that depend on what it was asked for: a path, a name, a size."""


class AgenticError(Exception):
    """Base of every error of this package."""


class ConfigError(AgenticError, ValueError):
    """A configuration that cannot work; the message names the key, the value and the way out."""


class MissingDependencyError(ConfigError, ImportError):
    """An optional dependency is not installed; the message names the `pip install`."""


class DataError(AgenticError, ValueError):
    """A dataset row, checkpoint or file that is not what it should be."""


class PluginError(AgenticError, RuntimeError):
    """The plugin is not, or not completely, loaded into verl."""


class PolicyError(AgenticError, RuntimeError):
    """The policy's generation server failed or answered something impossible."""


class InfrastructureError(AgenticError, RuntimeError):
    """Too many episodes fail for infrastructure reasons. Training would continue on a biased rest."""


class StarvationError(AgenticError, RuntimeError):
    """Gates drop so many groups that no batch becomes full."""


class AuditError(AgenticError, RuntimeError):
    """The training rows differ from what the policy did: a mask, a reward or a log-prob lies where it must not."""


class HealthError(AgenticError, RuntimeError):
    """An alarm stopped the run; its last healthy checkpoint stays, and the weights were saved aside."""


class EnvError(AgenticError, RuntimeError):
    """The environment failed: infrastructure, not the policy's doing."""


class SandboxError(EnvError):
    """The sandbox itself failed; failures of the code inside it are results, not errors."""


class SandboxUnavailableError(SandboxError):
    """A backend cannot work here; the message says what is missing and what else could be used."""


class SandboxBusyError(SandboxError):
    """All sandboxes are in use and too many callers wait, or one has waited too long; trying later may help."""


class SearchError(EnvError):
    """The retriever failed or answered something impossible; a query without results is no error."""


class SearchUnavailableError(SearchError):
    """The retriever cannot be reached, is overloaded, or gave no answer in time; trying later may help."""


class EnvUnavailableError(EnvError):
    """The server of a remote environment cannot be reached or has lost the session; another server may help."""


class EnvBusyError(EnvError):
    """The server of a remote environment has as many sessions as it may have; trying later may help."""


class ScoringError(AgenticError, RuntimeError):
    """A scorer raised, hung or left its range."""


class boundary:
    """Attributes any foreign exception that escapes the block to the layer it crossed.

    `SystemExit` is one of them: code that means to end itself would end the whole process.

    Errors of this package pass unchanged, so the innermost attribution wins.

    Raises:
        error: with `what`, the original type and message and its place in the user's code, chained to the original
            exception.
    """

    __slots__ = ("_error", "_what")

    def __init__(self, error: type[AgenticError], what: str) -> None:
        """Makes the context; a class, as episodes enter ten of them in every turn."""
        self._error, self._what = error, what

    def __enter__(self) -> None:
        """Begins the block."""

    def __exit__(self, _: object, cause: BaseException | None, __: object) -> None:
        """Raises `error` for a foreign exception."""
        if cause is None:  # nearly always
            return
        if isinstance(cause, (Exception, SystemExit)) and not isinstance(cause, AgenticError):
            raise self._error(f"{self._what} failed, got {describe_cause(cause)}") from cause


def is_infrastructure(error: BaseException) -> bool:
    """Returns whether an exception says that something around a tool failed, whatever the tool was asked to do.

    These are the errors of this package except `DataError`, and failures of the operating system (connections, full
    disks, no memory for a process) that do not depend on a path or a size. A cause, a context or a member of a group
    counts as the exception itself, because HTTP clients wrap those. A bare `TimeoutError` is none: arguments can make
    work slow.
    """
    for part in iter_causes(error):
        if isinstance(part, AgenticError) and not isinstance(part, DataError):
            return True
        if isinstance(part, OSError) and not _depends_on_arguments(part, is_bare=part is error):
            return True
    return False


def is_by_policy(error: AgenticError) -> bool:
    """Returns whether an error after the policy's first turn is an outcome of the episode, and no failure around it.

    This is the one rule: what an empty policy would also meet is infrastructure, all else is the policy's doing. By it
    are a `DataError` (what it wrote or filled cannot be used), a deadline that its code has spent, and, in a step or in
    scoring, what only the shape of data causes: text that no encoding has, recursion, a name that no file system takes.
    Other exceptions of an environment or a scorer are faults of theirs.
    """
    cause = error.__cause__
    if isinstance(error, DataError) or getattr(cause, "by_code", False):
        return True
    is_name = isinstance(cause, OSError) and cause.errno in _ERRNOS_OF_ARGUMENTS
    is_shape = is_name or isinstance(cause, (RecursionError, UnicodeError, OverflowError))
    return is_shape and type(error) in (EnvError, ScoringError)  # else whoever raised it knows what has failed


def _depends_on_arguments(error: OSError, *, is_bare: bool) -> bool:
    if isinstance(error, TimeoutError):
        return is_bare and error.errno is None
    return isinstance(error, _OF_ARGUMENTS) or error.errno in _ERRNOS_OF_ARGUMENTS


def describe_error(error: BaseException) -> str:
    """Returns type, message and place of an exception in one line.

    The place is in the user's code, else the innermost frame. An error of this package is its message, with the place
    of its cause.
    """
    text = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, AgenticError):
        place = locate_error(error.__cause__ or error)
    else:
        text, place = f"{type(error).__name__}: {text}", locate_error(error) or _locate_last_frame(error)
    return text if not place or place in text else f"{text} ({place})"


def _locate_last_frame(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


RAY_IS_SLOW = "The current node timed out during startup"
"""Part of Ray's error if a node does not start within 30 s, as on a busy machine. Ray has no setting for this limit."""
