"""The exception tree: every error is ours and the standard library's, crosses processes, and keeps its cause."""

from __future__ import annotations

import pickle

import pytest

from verl_agentic.base import errors
from verl_agentic.base.errors import AgenticError, ConfigError, EnvError, PolicyError, boundary
from verl_agentic.cpu.quickstart.child_process import ChildFailedError

STANDARD: dict[type[AgenticError], tuple[type[Exception], ...]] = {
    errors.AgenticError: (Exception,),
    errors.ConfigError: (ValueError,),
    errors.MissingDependencyError: (ValueError, ImportError),
    errors.DataError: (ValueError,),
    errors.PluginError: (RuntimeError,),
    errors.PolicyError: (RuntimeError,),
    errors.InfrastructureError: (RuntimeError,),
    errors.EnvError: (RuntimeError,),
    errors.SandboxError: (RuntimeError, errors.EnvError),
    errors.SandboxUnavailableError: (RuntimeError, errors.SandboxError),
    errors.SandboxBusyError: (RuntimeError, errors.SandboxError),
    errors.SearchError: (RuntimeError, errors.EnvError),
    errors.SearchUnavailableError: (RuntimeError, errors.SearchError),
    errors.EnvUnavailableError: (RuntimeError, errors.EnvError),
    errors.EnvBusyError: (RuntimeError, errors.EnvError),
    errors.ScoringError: (RuntimeError,),
    errors.StarvationError: (RuntimeError,),
    errors.AuditError: (RuntimeError,),
    errors.HealthError: (RuntimeError,),
    ChildFailedError: (RuntimeError,),
}


def test_every_error_of_the_tree_is_named_here() -> None:
    defined = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, AgenticError)}
    assert defined == set(STANDARD) - {ChildFailedError}
    assert all(f"{error.__name__} " in str(errors.__doc__) for error in defined - {AgenticError})


@pytest.mark.parametrize("error", STANDARD, ids=lambda e: e.__name__)
def test_every_error_is_also_the_standard_librarys_and_survives_pickling(error: type[AgenticError]) -> None:
    assert issubclass(error, (AgenticError, *STANDARD[error])[0]) and all(issubclass(error, s) for s in STANDARD[error])
    raised = error("what is wrong, got 3; what to do")
    again = pickle.loads(pickle.dumps(raised))
    assert type(again) is error
    assert (str(again), again.args) == ("what is wrong, got 3; what to do", raised.args)


def test_a_foreign_exception_is_attributed_to_the_layer_it_crossed() -> None:
    with pytest.raises(EnvError, match="'x'") as caught, boundary(EnvError, "starting the env"):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_innermost_attribution_wins() -> None:
    message = r"^generating failed, got OSError: gone \("
    with (  # the last one named is the innermost
        pytest.raises(PolicyError, match=message),
        boundary(EnvError, "outer"),
        boundary(PolicyError, "generating"),
    ):
        raise OSError("gone")


def test_an_interruption_passes_unchanged() -> None:
    with pytest.raises(KeyboardInterrupt), boundary(ConfigError, "reading"):
        raise KeyboardInterrupt


def test_code_that_means_to_end_the_process_has_failed() -> None:
    with pytest.raises(EnvError, match="SystemExit: 3"), boundary(EnvError, "stepping"):
        raise SystemExit(3)
