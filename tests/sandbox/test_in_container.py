"""An ordinary container, as `docker run` makes it: no namespaces can be made there, and policies' code is isolated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from escape_contenders import CONTENDERS
from escape_probes import PROBES

ROOT = Path(__file__).parents[2]
ESCAPES = "test_contained and landlock and not ordinary"
(LANDLOCK,) = (contender for contender in CONTENDERS if contender.name == "landlock")
ORDINARY_USER = 1000
_TIMEOUT_S = 600


def _run(
    api: Any, image: str, *, user: int, arguments: Sequence[str] = (), security: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what `in_container.py` reports from a container with Docker's defaults."""
    packages = str(Path(pytest.__file__).parents[1])
    mounts = {str(ROOT): "/project", packages: "/packages"}
    container = api.create_container(
        image,
        ["python", "/project/tests/sandbox/in_container.py", *arguments],
        user=str(user),
        working_dir="/project",
        environment={
            "PYTHONPATH": "/project:/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        host_config=api.create_host_config(
            binds={source: {"bind": target, "mode": "ro"} for source, target in mounts.items()},
            security_opt=list(security),
        ),
    )["Id"]
    try:
        api.start(container)
        status = api.wait(container, timeout=_TIMEOUT_S)
        output = api.logs(container).decode(errors="replace")
    finally:
        api.remove_container(container, force=True)
    assert status["StatusCode"] == 0, output[-4000:]
    (line,) = (line for line in output.splitlines() if line.startswith('{"user"'))
    return json.loads(line)


@pytest.mark.parametrize("user", [0, ORDINARY_USER], ids=["root", "ordinary_user"])
def test_code_of_a_policy_is_isolated_and_escapes_are_contained(api: Any, docker_image: str, user: int) -> None:
    tests = f"tool_runs_the_code or backend_can_be_named or ({ESCAPES})"  # the others need a tokenizer
    arguments = ["envs/python_math/test_env.py", "tests/sandbox/escapes", "-k", tests]
    report = _run(api, docker_image, user=user, arguments=arguments)
    works = {probe["name"]: not probe["refusal"] for probe in report["probes"]}
    if not works["landlock"]:
        pytest.skip(str(report["probes"]))
    assert works == {"namespaces": False, "docker": False, "landlock": True, "local": True}
    shares_user = user != 0  # as root the code is somebody else
    assert report["user"] == user and report["backend"] == "landlock"
    assert report["answer"] == f"3108 {shares_user} []"
    assert report["failures"] == []
    assert report["counts"]["passed"] > len(PROBES) - len(LANDLOCK.does_not_stop)  # all of them, and the environment's
    assert report["counts"]["skipped"] == len(LANDLOCK.does_not_stop)


def test_a_profile_that_refuses_landlock_is_named_and_nothing_runs_without_walls(api: Any, docker_image: str) -> None:
    calls = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "unshare"]
    refused = {"names": calls, "action": "SCMP_ACT_ERRNO"}
    profile = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]})
    report = _run(api, docker_image, user=0, security=[f"seccomp={profile}"])
    error = report["error"]
    assert "landlock_create_ruleset" in error
    assert "process_limits" in error and "answer" not in report
