"""Requirements that name a package, and no URL, path or option."""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement, Requirement

_ARCHIVE = re.compile(r"\.(whl|zip|tar|tar\.\w+|t[gbx]z|tlz|gz|bz2|xz)$", re.I)


def parse_named(text: str) -> Requirement | None:
    """Returns a requirement, or None for anything but a name with extras, versions and a marker.

    A URL, a path, an option of pip (`-r`, `-e`, `--index-url`) and the name of an archive, which pip takes for a file,
    are none.
    """
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    if requirement.url is not None or _ARCHIVE.search(requirement.name):
        return None
    return requirement


def normal_name(name: str) -> str:
    """Returns a package's name in normal form: lower case, `-` for runs of `-_.`."""
    return re.sub(r"[-_.]+", "-", name).lower()
