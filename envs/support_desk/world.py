"""The domains, with generated databases or tau2's."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic import ConfigError, DataError

from .database import Database, Record, Tables
from .desk_tool import Domain
from .domains.airline import Airline
from .domains.airline_tasks import airline_tables
from .domains.retail import Retail
from .domains.retail_tasks import retail_tables

DOMAINS: Mapping[str, type[Domain]] = {"retail": Retail, "airline": Airline}
_GENERATED = {"retail": retail_tables, "airline": airline_tables}
_TABLES = {"retail": ("users", "orders", "products"), "airline": ("users", "flights", "reservations")}


@functools.cache
def domain_tables(domain: str, data: str = "") -> Tables:
    """Returns the database of a domain: the generated one, or that of tau2 in a folder; read once per process.

    Raises:
        DataError: the folder has no database, or one of another format.
    """
    if not data:
        return _GENERATED[domain]()
    tables = read_json(data, domain, "db.json")
    missing = [name for name in _TABLES[domain] if not isinstance(tables.get(name), Mapping)]
    if missing:
        raise DataError(f"the database of {domain} must have the tables {_TABLES[domain]}, got none of {missing}")
    return tables


def replay(domain: str, tables: Tables, actions: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Record]:
    """Returns the changes of a database after calls; refused calls change nothing, as in tau2.

    Tools are coroutines that never wait, so no event loop is needed.
    """
    played = DOMAINS[domain](Database(tables))
    tools = {tool.name: tool for tool in played.tools()}
    for action in actions:
        with contextlib.suppress(StopIteration):
            tools[action["name"]].call(action["arguments"]).send(None)
    return played.database.changes()


def read_json(data: str, domain: str, name: str) -> Any:
    """Returns the content of a JSON file of a domain, packed or not.

    Raises:
        ConfigError: the domain cannot be played.
        DataError: the file is missing or malformed.
    """
    if domain not in DOMAINS:
        raise ConfigError(
            f"domains whose tools are here are {sorted(DOMAINS)}, got {domain!r}; in telecom and banking the user "
            "calls tools, too, which simulated users here cannot"
        )
    folder = Path(data) / domain
    try:
        if (folder / name).is_file():
            return json.loads((folder / name).read_text(encoding="utf-8"))
        return json.loads(gzip.decompress((folder / f"{name}.gz").read_bytes()))
    except (OSError, ValueError) as cause:
        raise DataError(
            f"cannot read {folder / name}, got {cause}; name the folder `tau2/data/domains` of inspect-evals (pip "
            "download --no-deps inspect-evals)"
        ) from cause
