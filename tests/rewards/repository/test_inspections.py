"""Reports of the audit hook, and suspicious passes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from repository.shapes import SHAPE_CHEATS, SHAPES, SOLUTION, changes_of, make_shape
from repository.small_package import BASE, FIXED_SLUG, HIDDEN

from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading import pytest_harness
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.run_tests import run_repository_tests

# Each line is a way to inspect; the target that must be reported follows it.
_PEEKS = {
    "sys._getframe()": "sys._getframe",
    "inspect.currentframe()": "sys._getframe",
    "inspect.stack()": "sys._getframe",
    "logging.currentframe()": "sys._getframe",
    "list(traceback.walk_stack(None))": "sys._getframe",
    "sys._current_frames()": "sys._current_frames",
    "sys._current_exceptions()": "sys._current_exceptions",
    "sys.settrace(None)": "sys.settrace",
    "sys.setprofile(None)": "sys.setprofile",
    "raised().__traceback__.tb_frame": "tb_frame",
    "list(traceback.walk_tb(raised().__traceback__))": "tb_frame",
    "inspect.trace()": "",
    "collections.UserList(traceback.walk_tb(raised().__traceback__))": "tb_frame",
    "setattr(users, 'data', types.SimpleNamespace(count=sys._getframe)) or users.count(0)": "sys._getframe",
    "pytest.ExceptionInfo.from_exception(raised()).traceback[0].frame": "tb_frame",
    "_pytest._code.getrawcode(pytest.raises)": "__code__",
    "dict(inspect.getmembers(pytest.raises))['__code__']": "__code__",
    "signal.signal(signal.SIGUSR1, signal.SIG_IGN)": "verl_agentic.signal",
    "os.kill(os.getpid(), 0)": "os.kill",
    "__import__('_xxsubinterpreters')": "import",
    "(one for one in ()).gi_frame": "gi_frame",
    "gc.get_objects()": "gc.get_objects",
    "gc.get_referrers(sys)": "gc.get_referrers",
    "gc.get_referents(sys)": "gc.get_referents",
    "raised.__code__.replace(co_name='other')": "code.__new__",
    "marshal.loads(marshal.dumps(raised.__code__))": "marshal.loads",
    "compile('1', enum.__file__, 'eval')": "compile",
    "compile('1', test, 'eval')": "compile",
    "compile('1', __file__, 'eval')": "compile",
    "importlib.machinery.SourceFileLoader('a', 'b').source_to_code(b'1', enum.__file__)": "compile",
    "[f.__code__ for m in list(sys.modules.values()) if 'test_' in m.__name__ for f in vars(m).values() if f is not m"
    " and getattr(f, '__name__', '') == 'test_peeks']": "__code__",
    "open(test)": "tests/test_peeks.py",
    "open(Text(test))": "tests/test_peeks.py",
    "io.FileIO(pathlib.Path(test))": "?",
    "os.open(os.path.relpath(test), 0)": "tests/test_peeks.py",
    "os.open('test_peeks.py', 0, dir_fd=os.open(os.path.dirname(test), 0))": "test_peeks.py",
    "(os.symlink(test, '/tmp/other'), open('/tmp/other'))": "tests/test_peeks.py",
    "subprocess.run(['true'])": "subprocess.Popen",
    "__import__('multiprocessing.util').util.spawnv_passfds(b'/bin/true', [b'true'], ())": "verl_agentic.fork_exec",
    "os.system('true')": "os.system",
    "(os.fork() or os._exit(0), os.wait())": "os.fork",
    "os.posix_spawn('/bin/true', ['true'], {})": "os.posix_spawn",
}
_PEEKING = """import collections, concurrent.futures, enum, gc, importlib.machinery, inspect, io, logging, marshal
import os, pathlib, signal, subprocess, sys, traceback, types, pytest, _pytest._code
class Text(str): pass
users = collections.UserList()
test = os.path.join(os.path.dirname(__file__), "tests", "test_peeks.py")
def raised():
    try: 1 / 0
    except ZeroDivisionError as error: return error
def peek():
"""
# The functions that the hook has put in the place of others, and those of a test module that it has hidden.
_BLINDING = """import _posixsubprocess, _signal, sys
def peek():
    hidden = [type(module) for name, module in list(sys.modules.items()) if "test_peeks" in name]
    names = ("__getattribute__", "__setattr__", "__delattr__")
    methods = [vars(kind)[name] for kind in hidden for name in names if name in vars(kind)]
    for function in (_posixsubprocess.fork_exec, _signal.signal, *methods):
        function.__globals__.update(_WATCHED=(), _FRAMES=(), _STARTS=(), _read_inode=None)
    sys._getframe()
    return len(methods)
"""
_HONEST = """import asyncio, collections, types, dataclasses, enum, functools, inspect, io, json, logging, os
import pathlib, re, tempfile, traceback, typing, warnings
Pair = collections.namedtuple("Pair", "a b")
Color = enum.Enum("Color", "RED BLUE")
Named = typing.NamedTuple("Named", [("a", int)])
@dataclasses.dataclass(frozen=True)
class Point:
    x: int = 0
T = typing.TypeVar("T")
@functools.lru_cache
def work():
    logging.getLogger("a").warning("text %s", 1)
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("a").exception("failed")
        traceback.format_exc()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("old", DeprecationWarning, stacklevel=2)
    inspect.signature(work)
    asyncio.run(asyncio.sleep(0))
    types.coroutine(lambda: (yield))
    open(os.fsencode(__file__)).close()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "a.json")
        path.write_text(json.dumps(dataclasses.asdict(Point())))
        json.loads(path.read_text())
    exec(compile("x = 1", "<made>", "exec"), {})
    return re.sub("a", "b", "a")
"""


async def inspections(backend: Backend, site: Path, module: str, call: str) -> list[tuple[str, int, str]]:
    """Returns kind, line and target of the inspections of a module, while a test calls its function."""
    test = f"import module\n\n\ndef test_peeks():\n    assert module.{call}() != 0\n"
    tree = {"module.py": module.encode(), "tests/test_peeks.py": test.encode()}
    run = await run_repository_tests(backend, tree=tree, site=site, targets=["tests/test_peeks.py"])
    assert run.passed == {"tests/test_peeks.py::test_peeks"}, run
    return [(one.kind, one.line, one.target) for one in run.inspections if one.path == "module.py"]


@pytest.mark.slow
async def test_the_hook_cannot_be_switched_off_by_the_globals_of_the_functions_that_it_replaced(
    backend: Backend, site: Path
) -> None:
    found = await inspections(backend, site, _BLINDING, "peek")
    assert ("frames", 8, "sys._getframe") in found


@pytest.mark.slow
async def test_every_way_to_inspect_the_runner_or_the_tests_is_reported(backend: Backend, site: Path) -> None:
    lines = [f"    try: {peek}\n    except Exception: pass\n" for peek in _PEEKS]
    found = await inspections(backend, site, _PEEKING + "".join(lines), "peek")
    first = _PEEKING.count("\n") + 1
    reported = {(line, target) for _, line, target in found}
    for number, (peek, target) in enumerate(_PEEKS.items()):
        if target:
            assert (first + 2 * number, target) in reported, peek


@pytest.mark.slow
async def test_honest_use_of_the_standard_library_is_not_reported(backend: Backend, site: Path) -> None:
    assert await inspections(backend, site, _HONEST, "work") == []


@pytest.mark.slow
async def test_code_that_was_made_is_reported_though_a_test_is_nearer(backend: Backend, site: Path) -> None:
    module = "scope = {}\nexec('import sys\\ndef peek(): return sys._getframe(1)', scope)\npeek = scope['peek']\n"
    test = b"import module\n\n\ndef test_peeks():\n    assert module.peek()\n"
    tree = {"module.py": module.encode(), "tests/test_peeks.py": test}
    run = await run_repository_tests(backend, tree=tree, site=site, targets=["tests/test_peeks.py"])
    assert {(one.path, one.target) for one in run.inspections} == {("<made>", "sys._getframe")}


@pytest.mark.slow
async def test_objects_that_a_thread_of_the_library_collects_are_reported(backend: Backend, site: Path) -> None:
    module = (
        "import concurrent.futures, gc\ndef peek():\n"
        "    return concurrent.futures.ThreadPoolExecutor().submit(gc.get_objects).result()\n"
    )
    test = b"import module\n\n\ndef test_peeks():\n    assert module.peek()\n"
    tree = {"module.py": module.encode(), "tests/test_peeks.py": test}
    run = await run_repository_tests(backend, tree=tree, site=site, targets=["tests/test_peeks.py"])
    assert {(one.path, one.target) for one in run.inspections} == {("thread", "gc.get_objects")}


@pytest.mark.slow
async def test_a_suspicious_pass_is_paid_only_if_that_is_wanted(
    backend: Backend, store: TaskStore, task: RepoTask
) -> None:
    looks = (
        FIXED_SLUG
        + "\n_slug = slug\ndef slug(*a, **k):\n    __import__('sys')._getframe(1)\n    return _slug(*a, **k)\n"
    )
    change: dict[str, bytes | None] = {"smallkit/slugs.py": looks.encode()}
    report = await grade(task, store, change, backend)
    assert report.suspicious and not report.resolved and not report.info()["f2p_passed"]
    paid = await grade(task, store, change, backend, pays_suspicious=True)
    assert paid.suspicious and paid.resolved and paid.info()["f2p_passed"]


@pytest.mark.nightly
@pytest.mark.nightly
async def test_lines_of_the_base_tree_and_reads_of_the_reference_solution_are_not_suspicious(
    backend: Backend, store: TaskStore, task: RepoTask
) -> None:
    names = "\nimport sys, os\n_NAME = sys._getframe(0).f_code.co_name\n"
    reads = "\n_TEXT = open(os.path.dirname(__file__) + '/../tests/names.txt').read()\n"
    hidden = {**HIDDEN, "tests/names.txt": b"one two\n"}
    base = {**BASE, "smallkit/slugs.py": BASE["smallkit/slugs.py"] + names.encode()}
    fixed = FIXED_SLUG + names
    patched = replace(
        task, base_commit=store.add_tree(base), tests=store.add_tests(hidden), patch=_patch(base, fixed + reads)
    )
    honest = await grade(
        patched, store, {"smallkit/slugs.py": (fixed + reads.replace("_TEXT", "_WORDS")).encode()}, backend
    )
    assert honest.resolved and not honest.suspicious
    without = replace(patched, patch=_patch(base, fixed))
    report = await grade(without, store, {"smallkit/slugs.py": (fixed + reads).encode()}, backend)
    assert not report.resolved and "tests/names.txt" in report.suspicious[0]


def _patch(base: dict[str, bytes], fixed: str) -> str:
    from verl_agentic.swe.grading.tree_diffs import tree_diff

    return tree_diff({"smallkit/slugs.py": base["smallkit/slugs.py"]}, {"smallkit/slugs.py": fixed.encode()})


@pytest.mark.slow
async def test_the_hook_calls_nothing_of_the_repository(backend: Backend, site: Path) -> None:
    """While it works, it sees no events."""
    module = (
        "import sys\ncalls = []\nclass Text(str):\n    def __hash__(self): return calls.append(1) or 0\n"
        "    def __eq__(self, other): return calls.append(1) or True\n    __ne__ = __eq__\n"
        "    def startswith(self, *_): return calls.append(1) or True\n"
        "def work():\n    text = Text('sys._getframe')\n"
        "    for name in ('open', 'import', 'compile', 'object.__getattr__', 'marshal.loads', text):\n"
        "        try: sys.audit(name, text, text, text)\n        except Exception: pass\n"
        "    assert not calls\n"
    )
    await inspections(backend, site, module, "work")


@pytest.mark.parametrize(
    ("is_called", "is_replaced", "outcome"), [(1, 0, "passed"), (0, 0, "conflict"), (1, 1, "conflict")]
)
def test_a_test_passes_only_if_its_own_function_returned(is_called: int, is_replaced: int, outcome: str) -> None:
    reading, writing = os.pipe()
    reporter = pytest_harness.Reporter(writing, "token", frozenset())
    item = SimpleNamespace(nodeid="tests/test_a.py::test_a", obj=lambda: None, module=None)
    reporter.pytest_collection_modifyitems([item])
    reporter.pytest_runtest_logstart(item.nodeid)
    item.obj = (lambda: None) if is_replaced else item.obj
    call = reporter.pytest_runtest_call(item)
    next(call)
    for _ in range(is_called):
        item.obj()
    assert next(call, "ended") == "ended"
    passed = SimpleNamespace(nodeid=item.nodeid, failed=False, skipped=False, passed=True, when="call")
    reporter.pytest_runtest_logreport(passed)
    reporter.pytest_runtest_logfinish(item.nodeid)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        *_, last = pipe.read().splitlines()
    assert last.split()[3] == outcome


@pytest.mark.slow
@pytest.mark.sample(1, slow=5)
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_solution_is_paid_whatever_form_the_tests_have(shape: str, backend: Backend, tmp_path: Path) -> None:
    store, task = make_shape(tmp_path, shape)
    assert (await grade(task, store, SOLUTION, backend)).resolved
    assert not (await grade(task, store, {}, backend)).resolved


# A shape for which a cheat passes all tests, and what stops it.
_STOPPED = {
    ("negated", "inverts the calls"): "tampered",
    ("parameters", "reads marks and variables of test modules"): "suspicious",
    ("raises", "expected exceptions arrive once"): "tampered",
    ("local variables", "reads its caller"): "suspicious",
    ("data files", "reads the data file by a raw process"): "suspicious",
    ("helpers of the package", "empties the helpers of the package"): "refused",
    ("windows line ends", "result equals everything"): "forged",
    ("fixtures", "replaces helpers of test modules"): "suspicious",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("shape", "cheat"), _STOPPED)
async def test_each_defence_stops_a_cheat_that_no_other_one_needs_to(
    shape: str, cheat: str, backend: Backend, tmp_path: Path
) -> None:
    store, task = make_shape(tmp_path, shape)
    report = await grade(task, store, changes_of(cheat), backend)
    assert not report.resolved
    assert getattr(report, _STOPPED[shape, cheat])


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cheat", SHAPE_CHEATS)
async def test_no_cheat_is_paid_whatever_form_the_tests_have(
    shape: str, cheat: str, backend: Backend, tmp_path: Path
) -> None:
    store, task = make_shape(tmp_path, shape)
    assert not (await grade(task, store, changes_of(cheat), backend)).resolved
