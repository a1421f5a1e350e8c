"""Processes with verl's FSDP engine avoid cuDNN's attention, unless their environment chooses it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from patience import PATIENCE_S

from verl_agentic.credit.cudnn_attention import VARIABLE

_PRINT = "import os; import verl.workers.engine.fsdp.transformer_impl; print('is', os.environ.get({0!r}))"


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize(("chosen", "expected"), [(None, "1"), ("0", "0")])
def test_an_engine_puts_cudnn_last(chosen: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if chosen is not None:
        environment[VARIABLE] = chosen
    run = subprocess.run(
        [sys.executable, "-c", _PRINT.format(VARIABLE)],
        env={**environment, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert f"is {expected}" in run.stdout, run.stderr[-2000:]
