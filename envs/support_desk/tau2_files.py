"""The files of a domain of tau2, as the package inspect-evals ships them (`inspect_evals/tau2/data/domains`)."""

from __future__ import annotations

import gzip
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic import DataError

_POLICIES = (("policy.txt",), ("policy.md",), ("main_policy.txt", "tech_support_manual.txt"))


@dataclass(frozen=True, kw_only=True)
class Tau2Files:
    """A domain's folder; files may be packed with gzip."""

    data: str
    """The folder with the domains."""
    domain: str

    def json(self, name: str) -> Any:
        """Returns the content of a JSON file. Raises DataError if it is missing or malformed."""
        return self._parse_file(name, json.loads)

    def toml(self, name: str) -> Any:
        """Returns the content of a TOML file. Raises DataError if it is missing or malformed."""
        return self._parse_file(name, _load_toml)

    def policy(self) -> str:
        """Returns the policy document. Raises DataError if there is none."""
        for names in _POLICIES:
            if all((self._domain_folder / name).is_file() for name in names):
                texts = [(self._domain_folder / name).read_text(encoding="utf-8") for name in names]
                parts = [f"<{name[:-4]}>\n{text}\n</{name[:-4]}>" for name, text in zip(names, texts, strict=True)]
                return texts[0] if len(names) == 1 else "\n".join(parts)
        raise DataError(f"a domain of tau2 has a policy.txt or policy.md, got none in {self._domain_folder}")

    @property
    def _domain_folder(self) -> Path:
        return Path(self.data) / self.domain

    def _parse_file(self, name: str, parse: Any) -> Any:
        path = self._domain_folder / name
        try:
            packed = path.with_name(f"{name}.gz")
            text = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
            return parse(text.decode("utf-8"))
        except (OSError, ValueError, ImportError) as cause:
            raise DataError(
                f"cannot read {path}, got {cause}; name the folder `tau2/data/domains` of inspect-evals (pip download "
                "--no-deps inspect-evals)"
            ) from cause


def _load_toml(text: str) -> Any:
    try:
        return importlib.import_module("tomllib").loads(text)
    except ModuleNotFoundError:  # before Python 3.11
        return importlib.import_module("tomli").loads(text)
