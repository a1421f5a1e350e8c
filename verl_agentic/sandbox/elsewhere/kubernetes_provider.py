"""The backend `kubernetes`: pods of kubernetes-sigs/agent-sandbox, claimed from a warm pool.

The cluster is that of the pod's service account, else of the kubeconfig (`KUBECONFIG`).
"""

from __future__ import annotations

import importlib
import math
import shlex
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import setting
from verl_agentic.sandbox.elsewhere.machines import ElsewhereConfig, Executed, write_in_chunks
from verl_agentic.sandbox.isolation import Isolation

_WRITE_S = 60


class KubernetesConfig(ElsewhereConfig):
    """Machines of the backend `kubernetes`. Image, processors, memory, runtime and network policy are those of the
    pool's SandboxTemplate.
    """

    warm_pool: str
    """Name of the SandboxWarmPool."""
    namespace: str = "default"
    """Namespace of the pool."""
    router_url: str | None = None
    """Address of the sandbox router; None connects to the pods, which works inside of the cluster only."""
    port: int = setting(8888, min=1, max=65_535)
    """Port of the runtime in the pod."""
    isolation: str = "container"
    """Isolation by the runtime class of the template, such as `own_kernel` for gVisor or Kata."""

    def check_together(self) -> None:
        if Isolation.parse(self.isolation) < Isolation.CONTAINER:
            raise ConfigError(f"isolation of a pod is container or own_kernel, got {self.isolation!r}")


class KubernetesProvider:
    """Makes machines of agent-sandbox (`machines.Provider`)."""

    name = "kubernetes"
    library = "k8s_agent_sandbox"
    key_variables = ()
    has_images = False

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config
        self.isolation = config.isolation

    async def start(self) -> None:
        """Makes the client."""
        config = self._config
        with needs_extra("kubernetes", what="the backend kubernetes"):
            models: Any = importlib.import_module(f"{self.library}.models")
            clients: Any = importlib.import_module(f"{self.library}.async_sandbox_client")
        if config.router_url is None:
            connection = models.SandboxInClusterConnectionConfig(server_port=config.port)
        else:
            connection = models.SandboxDirectConnectionConfig(api_url=config.router_url, server_port=config.port)
        self._client = clients.AsyncSandboxClient(connection_config=connection)

    async def create(self, image: str | None) -> KubernetesMachine:
        """Claims a pod, which the cluster removes at the end of the lease."""
        config = self._config
        sandbox = await self._client.create_sandbox(
            config.warm_pool,
            namespace=config.namespace,
            sandbox_ready_timeout=math.ceil(config.start_s),
            labels={"verl-agentic": "sandbox"},
            shutdown_after_seconds=config.lease_s,
        )
        return KubernetesMachine(sandbox, self._client, python=config.python)

    def read_error(self, error: Exception) -> tuple[int | None, Any]:
        """Returns the status and `Retry-After` of an error of the API server or the router."""
        name = type(error).__name__
        if name in ("SandboxClaimFailedError", "SandboxTemplateNotFoundError", "SandboxWarmPoolNotFoundError"):
            return 400, None
        if name == "SandboxNotFoundError":
            return 404, None
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None) or getattr(error, "status", None)
        headers = getattr(error, "headers", None) or getattr(response, "headers", None) or {}
        return status, headers.get("Retry-After")

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()


class KubernetesMachine:
    """A pod (`machines.Machine`)."""

    def __init__(self, sandbox: Any, client: Any, *, python: str) -> None:
        self._sandbox, self._client, self._python = sandbox, client, python

    async def execute(self, argv: Sequence[str], *, timeout_s: int) -> Executed:
        """Runs a program as the user of the runtime."""
        result = await self._sandbox.commands.run(shlex.join(argv), timeout=timeout_s, command_timeout=timeout_s)
        return Executed(result.exit_code, result.stdout if result.exit_code == 0 else result.stdout + result.stderr)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file with programs: the runtime's own upload is limited to its folder."""
        await write_in_chunks(self, path, data, python=self._python, timeout_s=_WRITE_S)

    async def remove(self) -> None:
        """Deletes the claim, and the pod with it."""
        await self._sandbox.terminate()
        await self._client.list_active_sandboxes()  # forgets it
