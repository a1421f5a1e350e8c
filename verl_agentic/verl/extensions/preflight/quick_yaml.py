"""Lets OmegaConf parse YAML with libyaml: a fifth of the time of the parser that is written in Python."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import yaml
from omegaconf import _utils as omegaconf


@contextlib.contextmanager
def quick_yaml() -> Iterator[None]:
    """Parses the files of the block with libyaml, if PyYAML was built with it."""
    get_loader = omegaconf.get_yaml_loader
    if yaml.__with_libyaml__:
        loader = _make_quick_loader(get_loader())
        omegaconf.get_yaml_loader = lambda: loader
    try:
        yield
    finally:
        omegaconf.get_yaml_loader = get_loader


def _make_quick_loader(loader: type[Any]) -> type[Any]:
    parser: Any = importlib.import_module("yaml.cyaml").CParser

    class QuickLoader(parser, loader):
        def __init__(self, stream: Any) -> None:
            parser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)
            self._source = stream

        def get_single_data(self) -> Any:
            try:
                return super().get_single_data()
            except yaml.YAMLError:  # the other parser has the messages that hydra's users know
                if hasattr(self._source, "seek"):
                    self._source.seek(0)
                return loader(self._source).get_single_data()

    return QuickLoader
