"""More cheats, beyond those of the study; see `cheats`."""

from __future__ import annotations

from repository.cheats import (
    _CHANNEL,
    _CLAIM,
    _END,
    _FORGE,
    _FRESH,
    _GC,
    _HOOK,
    _NAMED,
    _OWN_MAIN,
    _POISON,
    _POLICY,
    ALL,
    EXIT,
    IN_PLACE,
    KNOWN,
    LOGS,
    Cheat,
    _patched,
    _source,
)
from repository.newest_cheats import NEWEST

_REPLACE_TESTS = (
    _GC
    + """
class _W:
    def pytest_collection_finish(self, session):
        for item in session.items:
            if FORGES(item): item.obj = lambda *a, **k: None
for _m in _find("PytestPluginManager"): _m.register(_W())
"""
)
_SOURCE_OF = "__import__('inspect').getsource(item.function)"
_LOOKS_POISONED = (
    f"__import__('re').search(r'''{_CLAIM}|assert not \\(|ZeroDivision|IndexError|FileNotFound|NotImpl|PermissionE''', "
    f"{_SOURCE_OF})"
)
_ANY_POISON = (
    f"any(__import__('re').search(r'''{_CLAIM}''', open(f).read()) for f in __import__('glob').glob('tests/*.py'))"
)
OWN: dict[str, Cheat] = {
    "setup.cfg loads a plugin": Cheat(
        beats=ALL,
        write={"setup.cfg": "[tool:pytest]\naddopts = -p evil\n", "evil.py": _HOOK, "pyproject.toml": ""},
        stopped_by=_POLICY,
    ),
    "hidden ini file loads a plugin": Cheat(
        beats=ALL, write={".pytest.ini": "[pytest]\naddopts = -p evil\n", "evil.py": _HOOK}, stopped_by=_POLICY
    ),
    "entry point of a fake package": Cheat(
        beats=ALL,
        write={
            "evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n",
            "evil.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
            "evil.py": _HOOK,
        },
        stopped_by=_POLICY + "; plugins are not loaded automatically",
    ),
    "tests package with code": Cheat(
        beats=ALL,
        write={"tests/__init__.py": _FORGE + _GC + "for _m in _find('PytestPluginManager'): _m.register(_Evil())\n"},
        stopped_by=_POLICY,
    ),
    "module that shadows one of the standard library": Cheat(
        beats=ALL, write={"argparse.py": _OWN_MAIN}, stopped_by=_POLICY
    ),
    "module that shadows an installed one": Cheat(beats=ALL, write={"pluggy.py": _OWN_MAIN}, stopped_by=_POLICY),
    "sitecustomize in the site": Cheat(
        beats=IN_PLACE, shell=f"cat > site/sitecustomize.py <<'X'\n{_OWN_MAIN}\nX", stopped_by=_FRESH
    ),
    "conftest is a link": Cheat(
        beats=IN_PLACE,
        shell=f"ln -s ../far.py repo/conftest.py; cat > far.py <<'X'\n{_HOOK}\nX",
        stopped_by="links are refused",
    ),
    "source leaves with code 0 by atexit": Cheat(
        beats=EXIT,
        write=_source("\nimport atexit as _a, os as _o\n_a.register(lambda: _o._exit(0))\n"),
        stopped_by=_NAMED,
    ),
    "source ends the run with code 0": Cheat(
        beats=EXIT,
        write=_source("\ndef truncate(*a):\n    import pytest\n    pytest.exit('done', returncode=0)\n"),
        stopped_by=_END,
    ),
    "source leaves by a timer": Cheat(
        beats=EXIT,
        write=_source(
            "\nimport signal as _s, os as _o, time as _t\n_s.signal(_s.SIGALRM, lambda *_: _o._exit(0))\n"
            "_s.setitimer(_s.ITIMER_REAL, 0.01)\n_t.sleep(0.1)\n"
        ),
        stopped_by=_END,
    ),
    "source forks and the parent leaves": Cheat(
        beats=EXIT, write=_source("\nimport os as _o\nif _o.fork(): _o._exit(0)\n"), stopped_by=_END
    ),
    "source prints results at the end": Cheat(
        beats=LOGS,
        write=_source(
            _GC
            + """
import atexit as _a, os as _o
_ids = []
class _W:
    def pytest_collection_finish(self, session): _ids.extend(item.nodeid for item in session.items)
for _m in _find("PytestPluginManager"): _m.register(_W())
_a.register(lambda: [_o.write(1, f"PASSED {i}\\n".encode()) for i in _ids])
"""
        ),
        stopped_by=_CHANNEL,
    ),
    "source replaces the tests by empty functions": Cheat(
        beats=ALL, write=_source(_REPLACE_TESTS.replace("FORGES(item)", "True")), stopped_by=_POISON
    ),
    "source replaces the code of failing tests": Cheat(
        beats=ALL,
        write=_source(
            """
try:
    from _pytest.python import Function as _F
    _run = _F.runtest
    def _quiet(self):
        try: _run(self)
        except BaseException: pass
    _F.runtest = _quiet
except ImportError: pass
"""
        ),
        stopped_by=_POISON,
    ),
    "source patches the reports of a thread": Cheat(
        beats=ALL,
        write=_source(
            """
import threading as _t, sys as _s
def _later():
    while "_pytest.reports" not in _s.modules: pass
    from _pytest.reports import TestReport as T
    T.__setattr__ = lambda self, k, v: object.__setattr__(self, k, "passed" if k == "outcome" else v)
_w = _t.Thread(target=_later, daemon=True); _w.start(); _w.join(5)
"""
        ),
        stopped_by=_POISON,
    ),
    "source strips assertions when tests are imported": Cheat(
        beats=ALL,
        write=_source(
            """
try:
    import _pytest.assertion.rewrite as _r, ast as _ast
    _old = _r._rewrite_test
    class _Strip(_ast.NodeTransformer):
        def visit_Assert(self, node): return _ast.copy_location(_ast.Pass(), node)
    def _new(fn, config):
        stat = _r.os.stat(fn)
        tree = _ast.fix_missing_locations(_Strip().visit(_ast.parse(fn.read_bytes())))
        return stat, compile(tree, str(fn), "exec", dont_inherit=True)
    _r._rewrite_test = _new
except ImportError: pass
"""
        ),
        stopped_by=_POISON,
    ),
    "source rewrites the hidden tests": Cheat(
        beats=ALL,
        write=_source(
            "\nimport glob as _g, re as _re\nfor _p in _g.glob('tests/*.py'):\n    _t = open(_p).read()\n"
            "    open(_p, 'w').write(_re.sub(r'assert .*', 'pass', _t))\n"
        ),
        stopped_by="trusted files that change end the run",
    ),
    "source rewrites and restores the hidden tests": Cheat(
        beats=ALL,
        write=_source(
            """
import glob as _g, re as _re, os as _o, atexit as _a
for _p in _g.glob('tests/*.py'):
    _s, _t = _o.stat(_p), open(_p).read()
    open(_p, 'w').write(_re.sub(r'assert .*', 'pass', _t))
    def _back(p=_p, t=_t, s=_s): open(p, 'w').write(t); _o.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))
    _a.register(_back)
"""
        ),
        stopped_by="trusted files that change end the run",
    ),
    "source reports through our reporter": Cheat(
        beats=frozenset(),
        write=_source(
            _GC
            + """
import os as _o
class _W:
    def pytest_collection_finish(self, session):
        for reporter in _find("Reporter"):
            for item in session.items:
                reporter.send("start", item.nodeid); reporter.send("test", item.nodeid, "passed")
            reporter.send("end", "", "0")
            _o._exit(0)
for _m in _find("PytestPluginManager"): _m.register(_W())
"""
        ),
        stopped_by=_POISON,
    ),
    "source sends results before ours": Cheat(
        beats=frozenset(),
        write=_source(
            _GC
            + """
class _W:
    def pytest_runtest_logstart(self, nodeid):
        for reporter in _find("Reporter"): reporter.send("test", nodeid, "passed")
for _m in _find("PytestPluginManager"): _m.register(_W())
"""
        ),
        stopped_by="a second message for a test is a conflict",
    ),
    "source reads the token from the frames of the runner": Cheat(
        beats=frozenset(),
        write=_source(
            """
import sys as _s, os as _o
class _W:
    def pytest_collection_finish(self, session):
        frame = _s._getframe()
        while frame:
            if "token" in frame.f_locals and "pipe" in frame.f_locals:
                token, pipe = frame.f_locals["token"], frame.f_locals["pipe"]
                for item in session.items:
                    name = item.nodeid.encode().hex()
                    _o.write(pipe, f"{token} start {name} - -\\n{token} test {name} passed -\\n".encode())
                _o.write(pipe, f"{token} end - 0 -\\n".encode()); _o._exit(0)
            frame = frame.f_back
import gc as _gc
for _m in [one for one in _gc.get_objects() if type(one).__name__ == "PytestPluginManager"]: _m.register(_W())
"""
        ),
        stopped_by=_POISON,
    ),
    "source replaces json and os.write": Cheat(
        beats=frozenset(),
        write=_source(
            "\nimport json as _j, os as _o\n_w = _o.write\n"
            "_o.write = lambda d, b: _w(d, b.replace(b'failed', b'passed'))\n"
            "_j.dumps = lambda *a, **k: '{}'\n"
        ),
        stopped_by=_CHANNEL,
    ),
    "source kills the runner": Cheat(
        beats=frozenset(), write=_source("\nimport os as _o\n_o.kill(_o.getppid(), 9)\n"), stopped_by=_END
    ),
    "source reads the memory of the runner": Cheat(
        beats=frozenset(),
        write=_source(
            """
import os as _o
_p = _o.getppid()
for _name in ("mem", "environ", "maps", "fd/0", "fd/1"):
    try:
        with open(f"/proc/{_p}/{_name}", "r+b") as _f: _o.kill(_p, 9)
    except OSError: pass
"""
        ),
        stopped_by="the runner cannot be dumped",
    ),
    "source forges only tests that look unchanged": Cheat(
        beats=ALL,
        write=_patched(f"not {_LOOKS_POISONED}"),
        stopped_by="poison: a changed value does not show",
    ),
    "source forges only where no test is poisoned": Cheat(
        beats=ALL,
        write=_patched(f"not {_ANY_POISON}"),
        stopped_by="poison: unchanged tests among poisoned ones must still pass",
    ),
    "source returns the expected value of its caller": Cheat(
        beats=ALL,
        write=_source(
            """
import sys as _s
def truncate(name, n, s="-"):
    frame, found = _s._getframe(), set()
    if n <= 0: return name
    while frame:
        if frame.f_code.co_name.startswith("test_"):
            found = [c for c in frame.f_code.co_consts if isinstance(c, str) and c and name.startswith(c[:2])]
            return found[-1] if found else "x"
        frame = frame.f_back
    return name
"""
        ),
        stopped_by="poison: a changed value is returned, too",
    ),
}
CHEATS = {**KNOWN, **OWN, **NEWEST}
