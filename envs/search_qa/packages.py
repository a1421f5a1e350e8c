"""Passages about packages: installed Python distributions with their READMEs, and Debian packages."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message as Headers
from pathlib import Path
from typing import cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verl_agentic.tools.search.retriever import Passage

DPKG_STATUS = Path("/var/lib/dpkg/status")
_CHUNK_WORDS = 100
_MAX_README_CHUNKS = 12


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Python distribution or a Debian package."""

    name: str
    system: str
    """`Python distribution` or `Debian package`."""
    summary: str
    homepage: str
    needs: tuple[str, ...]
    """Names of its dependencies."""
    provides: tuple[str, ...]
    description: str
    """More text; long text gives several passages."""

    @property
    def passage_id(self) -> str:
        """Id of its first passage."""
        return f"{self.system}:{self.name}"

    def passages(self) -> Iterator[Passage]:
        """Yields what the corpus says of it."""
        facts = [
            f"The {self.system} {self.name}: {self.summary.rstrip('.')}.",
            f"Its homepage is {self.homepage} ." if self.homepage else "",
            f"It depends on {', '.join(self.needs)}." if self.needs else "",
            f"It provides {', '.join(self.provides)}." if self.provides else "",
        ]
        title = f"{self.name} ({self.system})"
        yield Passage(title=title, text=" ".join(filter(None, facts)), id=self.passage_id)
        words = self.description.split()
        for number, start in enumerate(range(0, len(words), _CHUNK_WORDS)[:_MAX_README_CHUNKS], start=1):
            text = " ".join(words[start : start + _CHUNK_WORDS])
            yield Passage(title=f"{title}, part {number}", text=text, id=f"{self.passage_id}#{number}")


def read_distributions() -> list[Package]:
    """Returns the installed Python distributions, in the order of their names."""
    packages: dict[str, Package] = {}
    for distribution in importlib.metadata.distributions():
        headers = cast("Headers", distribution.metadata)
        name = canonicalize_name(headers.get("Name") or "")
        if name and name not in packages:  # Python imports the first one on the path
            packages[name] = _read_distribution(name, headers)
    return [packages[name] for name in sorted(packages)]


def read_debian_packages(status: Path = DPKG_STATUS) -> list[Package]:
    """Returns the installed Debian packages, in the order of their names; empty on other systems."""
    if not status.is_file():
        return []
    paragraphs = [_parse_fields(text) for text in status.read_text(encoding="utf-8").split("\n\n")]
    installed = [p for p in paragraphs if p.get("Status", "").endswith(" installed")]
    packages = {fields["Package"]: _debian_package(fields) for fields in installed}
    return [packages[name] for name in sorted(packages)]


def _read_distribution(name: str, headers: Headers) -> Package:
    urls: dict[str, str] = {}
    for entry in headers.get_all("Project-URL") or []:
        label, _, url = entry.partition(",")
        urls[label.strip().lower()] = url.strip()
    return Package(
        name=name,
        system="Python distribution",
        summary=_join_lines(headers.get("Summary") or ""),
        homepage=headers.get("Home-page") or urls.get("homepage") or urls.get("home") or urls.get("source") or "",
        needs=tuple(dict.fromkeys(filter(None, map(_parse_requirement, headers.get_all("Requires-Dist") or [])))),
        provides=(),
        description=_extract_prose(headers.get("Description") or str(headers.get_payload() or "")),
    )


def _parse_requirement(requirement: str) -> str:
    """Returns the name of a requirement that applies here without extras, else nothing."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return ""
    holds = parsed.marker is None or parsed.marker.evaluate({"extra": ""})
    return canonicalize_name(parsed.name) if holds else ""


def _debian_package(fields: Mapping[str, str]) -> Package:
    summary, _, description = fields.get("Description", "").partition("\n")
    return Package(
        name=fields["Package"],
        system="Debian package",
        summary=summary,
        homepage=fields.get("Homepage", ""),
        needs=_parse_names(", ".join(filter(None, (fields.get("Pre-Depends"), fields.get("Depends"))))),
        provides=_parse_names(fields.get("Provides", "")),
        description=_join_lines(description.replace("\n .\n", "\n")),
    )


def _parse_names(relations: str) -> tuple[str, ...]:
    """Returns the names in a field of relations; for alternatives the first."""
    first = (relation.split("|")[0] for relation in relations.split(","))
    names = (re.sub(r"[\s(\[:].*", "", relation.strip()) for relation in first)
    return tuple(dict.fromkeys(filter(None, names)))


def _parse_fields(paragraph: str) -> dict[str, str]:
    """Returns the fields of a paragraph of dpkg's status file; lines that begin with a space continue one."""
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith(" "):
            fields[name] += "\n" + line
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def _extract_prose(text: str) -> str:
    """Returns a README without images, tags, link targets and rules."""
    text = re.sub(r"<[^<>]*>|!\[[^\]]*\]\([^)]*\)|```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return _join_lines(re.sub(r"[-=#*_~^`|]{3,}|\.\. \S+::.*", " ", text))


def _join_lines(text: str) -> str:
    return " ".join(text.split())
