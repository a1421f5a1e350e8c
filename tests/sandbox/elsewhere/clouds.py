"""Backends of providers over fakes, for the shared contract tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_cloud import FakeCloud
from fake_machine import python, skip_unless_possible
from fake_modal import fake_modal
from services import answering

from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.pools.backends import make_backend

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: fake, cluster: {{server: "{url}"}}}}]
users: [{{name: fake, user: {{}}}}]
contexts: [{{name: fake, context: {{cluster: fake, user: fake}}}}]
current-context: fake
"""
LIBRARIES = {"e2b": "e2b", "daytona": "daytona", "kubernetes": "k8s_agent_sandbox", "modal": None}


@dataclass(frozen=True)
class Cloud:
    """A provider: its fake, and where its requests go."""

    name: str
    fake: FakeCloud
    options: dict[str, Any]
    creation: str
    """Pattern of the request for a machine."""
    execution: str
    """Pattern of the request for a program."""

    def backend(self, **options: Any) -> Backend:
        return make_backend(self.name, **{**self.options, **options})


_PATTERNS = {
    "e2b": ("POST /e2b/v2/sandboxes$", "POST /envd/process.Process/Start"),
    "daytona": ("POST /daytona/sandbox$", "POST /toolbox/.*/process/execute"),
    "kubernetes": ("POST .*/sandboxclaims$", "POST /router/execute"),
    "modal": ("Sandbox.create", "call of Sandbox.exec"),
}


@contextlib.contextmanager
def provider(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Cloud]:
    """Serves the API of a provider, and points its library to it; skips without the library."""
    skip_unless_possible()
    if LIBRARIES[name] is not None:
        pytest.importorskip(LIBRARIES[name])
    fake = FakeCloud()
    options: dict[str, Any] = {"python": python()}
    with answering(fake.app()) as service:
        if name == "e2b":
            variables = {
                "E2B_API_KEY": "key",
                "E2B_API_URL": f"{service.url}/e2b",
                "E2B_SANDBOX_URL": f"{service.url}/envd",
            }
            variables["E2B_HTTP_VERSION"] = "1.1"
        elif name == "daytona":
            variables = {"DAYTONA_API_KEY": "key", "DAYTONA_API_URL": f"{service.url}/daytona"}
        elif name == "kubernetes":
            (folder / "kubeconfig").write_text(_KUBECONFIG.format(url=service.url))
            variables = {}
            # The library reads KUBECONFIG when it is imported.
            where = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
            monkeypatch.setattr(where, str(folder / "kubeconfig"))
            options |= {"router_url": f"{service.url}/router", "warm_pool": "pool"}
        else:
            variables = {"MODAL_TOKEN_ID": "id", "MODAL_TOKEN_SECRET": "key"}
            monkeypatch.setitem(sys.modules, "modal", fake_modal(fake))
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        creation, execution = _PATTERNS[name]
        try:
            yield Cloud(name, fake, options, creation, execution)
        finally:
            fake.end_all_leases()
