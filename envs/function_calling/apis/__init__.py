"""The simulated APIs: tools, their answers, and users' requests."""

from collections.abc import Mapping

from . import calendar, files, home, messages, money, music, shopping, travel, units, weather
from .base import Api, Chain, Draw, Intent, call

_DOMAINS = (weather, calendar, files, shopping, units, money, messages, travel, home, music)

APIS: Mapping[str, Api] = {api.name: api for domain in _DOMAINS for api in domain.APIS}
"""Name -> tool, of all domains."""
DOMAIN_OF: Mapping[str, str] = {
    api.name: domain.__name__.rpartition(".")[2] for domain in _DOMAINS for api in domain.APIS
}
"""Name of a tool -> name of its domain."""
INTENTS: tuple[Intent, ...] = tuple(intent for domain in _DOMAINS for intent in domain.INTENTS)
"""Requests for one call."""
CHAINS: tuple[Chain, ...] = tuple(chain for domain in _DOMAINS for chain in domain.CHAINS)
"""Requests for two calls; the second uses the answer to the first."""

__all__ = ["APIS", "CHAINS", "DOMAIN_OF", "INTENTS", "Api", "Chain", "Draw", "Intent", "call"]
