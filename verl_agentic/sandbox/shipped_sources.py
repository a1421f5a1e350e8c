"""The modules of `inside` as text, for Pythons in images and machines that have no `verl_agentic`."""

from __future__ import annotations

import functools
import json
from pathlib import Path

_INSIDE = Path(__file__).parent / "inside"
IMPORTER = """
import json, sys
from importlib.machinery import ModuleSpec
class Given:
    sources = json.loads(given.decode())
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name == "inside") if name in self.sources else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(self.sources[module.__name__], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Given())
"""
"""Python that makes the package `inside` importable; `given` holds the bytes of `sources`."""


@functools.cache
def sources() -> bytes:
    """Returns the source of each module by its name, as JSON."""
    modules = {f"inside.{path.stem}": path.read_text() for path in sorted(_INSIDE.glob("*.py"))}
    return json.dumps({"inside": modules.pop("inside.__init__"), **modules}).encode()
