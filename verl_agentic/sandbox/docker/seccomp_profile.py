"""The filter of untrusted code (`inside.seccomp`) as a profile for engines.

It also allows the three families of sockets, and to change limits for the own process only: otherwise code could end
process 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from verl_agentic.sandbox.inside import seccomp

_CHECKED = ("clone", "fcntl", "ioctl", "prlimit64", "socket", "socketpair")
_ENOSYS = 38
_WORD = 0xFFFF_FFFF  # the kernel ignores the upper half of these arguments; some C libraries extend the sign into it


def profile() -> str:
    """Returns the profile, as the engine takes it in `security_opt`."""
    rules = [
        _build_rule(name for name in seccomp.ALLOWED if name not in _CHECKED),
        _build_rule("clone", _build_condition(0, "SCMP_CMP_MASKED_EQ", seccomp.NAMESPACE_FLAGS)),
        # Its flags are in memory, which a filter cannot read. The C library falls back to clone.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        {"names": ["flock"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0},
        *_rules_of_requests("fcntl", seccomp.FCNTL.values()),
        *_rules_of_requests("ioctl", seccomp.IOCTL.values()),
        _build_rule("prlimit64", _build_condition(0, "SCMP_CMP_EQ", 0)),  # one's own
        _build_rule("prlimit64", _build_condition(2, "SCMP_CMP_EQ", 0)),  # only to read them
        *(
            _build_rule("socket", _build_condition(0, "SCMP_CMP_EQ", family))
            for family in (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6)
        ),
        _build_rule("socketpair", _build_condition(0, "SCMP_CMP_EQ", seccomp.AF_UNIX)),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def _rules_of_requests(name: str, requests: Iterable[int]) -> list[dict[str, Any]]:
    return [_build_rule(name, _build_condition(1, "SCMP_CMP_MASKED_EQ", _WORD, request)) for request in requests]


def _build_rule(names: str | Iterable[str], *conditions: dict[str, Any]) -> dict[str, Any]:
    names = [names] if isinstance(names, str) else [*names]
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": [*conditions]}


def _build_condition(index: int, comparison: str, value: int, second: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": second, "op": comparison}
