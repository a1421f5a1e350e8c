"""Tasks and APIs of the package `bfcl-eval`: its files and classes, without the dependencies of its runners."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import DataError

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}  # BFCL's names of types -> those of JSON schema
_FAULTY = frozenset(
    {
        "multi_turn_miss_func_49",  # its solution calls `tail` before the turn that offers it
        # Their solutions close the ticket "ticket_001", whose id is an integer in the schema.
        *(f"multi_turn_{name}_173" for name in ("base", "miss_func", "miss_param", "long_context")),
    }
)
_COSTLY, _MAX_SIZE = ("exponent", "precision"), 1000  # a power of 10^9 would block the process for minutes
_lock = threading.Lock()  # `logarithm` sets the precision of the whole process
Call = tuple[str, dict[str, Any]]
"""Name and arguments."""


@contextmanager
def needs_bfcl() -> Iterator[None]:
    """Wraps imports of the package. Its own requirements pin old versions and pull CUDA, so no extra can name it."""
    with needs_extra("bfcl", what="environment bfcl", then="pip install --no-deps bfcl-eval"):
        yield


@functools.cache
def tasks(category: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns id -> task of a category, each with its `solution`: the calls of every turn, as texts.

    Tasks that their own solution does not solve are left out.
    """
    solutions = {task["id"]: task["ground_truth"] for task in _read_records(f"possible_answer/BFCL_v4_{category}.json")}
    sound_tasks = (task for task in _read_records(f"BFCL_v4_{category}.json") if task["id"] not in _FAULTY)
    return {task["id"]: {**task, "solution": solutions[task["id"]]} for task in sound_tasks}


def task_of(task_id: str) -> Mapping[str, Any]:
    """Returns a task. Raises DataError if the installed package does not have it, or only a faulty one."""
    task = tasks(task_id.rpartition("_")[0]).get(task_id)
    if task is None:
        raise DataError(f"the installed bfcl-eval has no task {task_id!r}; make the rows anew")
    return task


@functools.cache
def functions(class_name: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns name -> function (name, description, parameters as JSON schema) of an API class."""
    with needs_bfcl():
        from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING as files

    keys = ("name", "description", "parameters")
    docs = _read_records(f"multi_turn_func_doc/{files[class_name]}")
    return {doc["name"]: {key: _json_schema(doc[key]) for key in keys} for doc in docs}


def read_call(text: str, task: Mapping[str, Any]) -> Call:
    """Returns a call of a solution, such as `sort('a.txt')`, with named arguments."""
    call: Any = ast.parse(text, mode="eval").body
    function = next(doc for name in task["involved_classes"] if (doc := functions(name).get(call.func.id)) is not None)
    arguments = dict(zip(function["parameters"]["properties"], call.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in call.keywords}
    return call.func.id, {name: ast.literal_eval(value) for name, value in arguments.items()}


class Apis:
    """The API objects of one task, with their state."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        with needs_bfcl():
            from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

        self.objects: dict[str, Any] = {}
        self._owners: dict[str, Any] = {}
        for name in task["involved_classes"]:
            api = self.objects[name] = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                config = copy.deepcopy(task["initial_config"].get(name, {}))
                api._load_scenario(config, long_context="long_context" in task["id"])
            self._owners |= dict.fromkeys(functions(name), api)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the result of a call as BFCL's checker writes it; an exception is a result, too."""
        for key in _COSTLY:
            if isinstance(size := arguments.get(key), int | float) and size > _MAX_SIZE:
                return f"Error during execution: {key} must be at most {_MAX_SIZE}"
        try:
            with _lock:
                result = getattr(self._owners[name], name)(**arguments)
            if isinstance(result, str):
                return result
            return json.dumps(result) if isinstance(result, dict) else str(result)
        except Exception as cause:  # foreign code, with arguments of the policy
            return f"Error during execution: {cause}"


def data_file(name: str) -> Path:
    """Returns the path of a file of the package's data."""
    with needs_bfcl():
        import bfcl_eval
    return Path(bfcl_eval.__file__).parent / "data" / name


def _read_records(name: str) -> list[dict[str, Any]]:
    lines = data_file(name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _json_schema(node: Any) -> Any:
    if isinstance(node, list):
        return [_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    types = {"type": _TYPES.get(node["type"], node["type"])} if isinstance(node.get("type"), str) else {}
    return {key: _json_schema(value) for key, value in node.items()} | types
