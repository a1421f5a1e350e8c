"""Addresses and token of environment servers, from arguments or from the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from verl_agentic.base.errors import ConfigError

URL_VARIABLE, TOKEN_VARIABLE = "VERL_AGENTIC_ENV_URL", "VERL_AGENTIC_ENV_TOKEN"


def urls_of(addresses: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the addresses of equal servers: the given ones, else those in `VERL_AGENTIC_ENV_URL`.

    Raises:
        ConfigError: there is none, or one is not an HTTP address.
    """
    urls = addresses or os.environ.get(URL_VARIABLE, "")
    urls = tuple(urls.split()) if isinstance(urls, str) else tuple(urls)
    if not urls:
        raise ConfigError(f"a remote environment needs the url of a server, got none; set url or {URL_VARIABLE}")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"url must be http(s)://HOST:PORT, got {url!r}; set url or {URL_VARIABLE}")
    return tuple(url.rstrip("/") for url in urls)


def token_of(token: str) -> str:
    """Returns the given token, else that in `VERL_AGENTIC_ENV_TOKEN`, which may be empty."""
    return token or os.environ.get(TOKEN_VARIABLE, "")
