"""Hydra configurations, found by `hydra.searchpath: [pkg://verl_agentic.config]`.

Hydra imports this package for it: the one moment at which a run that verl started without the plugin can be stopped.
"""

import os
import sys

from verl_agentic.base.errors import PluginError

if "verl" in sys.modules and "verl_agentic.plugin" not in sys.modules:
    _policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if _failure := getattr(sys.modules.get("verl_agentic.entry_point"), "failure", ""):
        raise PluginError(f"the plugin verl_agentic did not load, got {_failure}; run `verl-agentic doctor`")
    raise PluginError(
        "verl did not load the plugin verl_agentic, got "
        + ("no entry point verl_agentic" if _policy == "auto" else f"VERL_USE_EXTERNAL_PLUGINS={_policy}")
        + ("; pip install . in a clone of verl_agentic" if _policy == "auto" else "; unset it")
        + ", and run `verl-agentic doctor`"
    )
