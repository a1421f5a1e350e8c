"""The providers by the name of their backend."""

from __future__ import annotations

import importlib.util
from typing import Any

from verl_agentic.sandbox.elsewhere.daytona_provider import DaytonaConfig, DaytonaProvider
from verl_agentic.sandbox.elsewhere.e2b_provider import E2BConfig, E2BProvider
from verl_agentic.sandbox.elsewhere.kubernetes_provider import KubernetesConfig, KubernetesProvider
from verl_agentic.sandbox.elsewhere.machines import missing_key
from verl_agentic.sandbox.elsewhere.modal_provider import ModalConfig, ModalProvider

PROVIDERS: dict[str, tuple[Any, Any]] = {
    "daytona": (DaytonaProvider, DaytonaConfig),
    "e2b": (E2BProvider, E2BConfig),
    "kubernetes": (KubernetesProvider, KubernetesConfig),
    "modal": (ModalProvider, ModalConfig),
}
"""Name -> provider and its settings. The libraries are imported at the start of a backend."""


def states() -> dict[str, str]:
    """Returns what each provider needs here. Makes no machine, because machines cost money."""
    return {name: _describe_state(name, provider) for name, (provider, _) in PROVIDERS.items()}


def _describe_state(name: str, provider: Any) -> str:
    if importlib.util.find_spec(provider.library) is None:
        return f"not installed; pip install 'verl-agentic[{name}]'"
    if missing := missing_key(provider):
        return f"installed; set {missing} to use it"
    options = " --set warm_pool=NAME" if name == "kubernetes" else ""
    return f"can be used, not tested; try: verl-agentic sandbox run --backend {name}{options} -- true"
