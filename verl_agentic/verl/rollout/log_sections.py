"""The sections of the log of a run, and of its audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_agentic.base.settings import read_settings
from verl_agentic.verl.sections import AGENTIC, plain_section, section

if TYPE_CHECKING:
    from verl_agentic.episode.loop_settings import Audit
    from verl_agentic.log.log_options import LogOptions


@section(f"{AGENTIC}.log")
def log_options(config: Any) -> LogOptions:
    """Returns the options of the run's log."""
    from verl_agentic.log.log_options import LogOptions

    return read_settings(LogOptions, plain_section(config, f"{AGENTIC}.log"), section=f"{AGENTIC}.log")


@section(f"{AGENTIC}.audit")
def audit(config: Any) -> Audit:
    """Returns the action for a row whose tokens, mask and text do not match."""
    from verl_agentic.episode.loop_settings import to_audit

    return to_audit(plain_section(config, f"{AGENTIC}.audit"), name=f"{AGENTIC}.audit")
