"""Readers of the tests of programming tasks: APPS, TACO, LiveCodeBench, DeepCoder."""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.data.making.maker import RefusedError

MAX_TEST_BYTES = 64 << 20
"""Maximum size of the tests of one problem; a packed column may otherwise fill the memory."""
_TEXT_CODES = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_FRAME_CODES = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_STDIN, _FUNCTION = ("stdin", "stdin_stdout"), ("functional", "function_call")

Tests = dict[str, Any]
"""`inputs`, `outputs` and `fn_name`, see `graders.code.run_tests.CodeTests.from_json`."""


def read_tests(value: Any, record: Mapping[str, Any]) -> Tests:
    """Returns the tests of a column with JSON: an object with lists, as APPS and TACO have it, or a list of tests."""
    tests = _parse_json(value)
    if isinstance(tests, Mapping):
        inputs, outputs = tests.get("inputs"), tests.get("outputs")
        if not inputs:
            raise RefusedError("no tests")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise RefusedError("malformed tests: inputs and outputs must be lists of the same length")
        return {"inputs": inputs, "outputs": outputs, "fn_name": tests.get("fn_name") or None}
    return _merge_cases(tests, record)


def read_all_cases(value: Any, record: Mapping[str, Any]) -> Tests:
    """Returns the public, then the private tests of LiveCodeBench; its authors score with both."""
    public = _parse_json(record.get("public_test_cases") or "[]")
    is_json = not isinstance(value, str) or value.lstrip().startswith("[")
    private = _parse_json(value if is_json else unpack_text(value))
    if not isinstance(public, list) or not isinstance(private, list):
        raise RefusedError("malformed tests: public_test_cases and the private ones must be lists")
    return _merge_cases([*public, *private], record)


def unpack_text(packed: str) -> str:
    """Returns the text of a base64-encoded, compressed pickle.

    The pickle is read and never run: it may hold one text and nothing else, so that no code of a data set is executed.

    Raises:
        RefusedError: it has another form or another content, or is larger than `MAX_TEST_BYTES`.
    """
    unpacker = zlib.decompressobj()
    try:
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_TEST_BYTES)
        if unpacker.unconsumed_tail:
            raise RefusedError(f"tests of more than {MAX_TEST_BYTES >> 20} MiB")
        codes = [(code.name, argument) for code, argument, _ in pickletools.genops(pickled)]
    except (binascii.Error, zlib.error, ValueError) as cause:
        raise RefusedError(f"malformed tests: {cause}") from cause
    texts = [argument for name, argument in codes if name in _TEXT_CODES]
    foreign = sorted({name for name, _ in codes} - _TEXT_CODES - _FRAME_CODES)
    if foreign or len(texts) != 1:
        raise RefusedError(f"a pickle that is no plain text, which is not run: {foreign or len(texts)}")
    return str(texts[0])


def _parse_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if len(value) > MAX_TEST_BYTES:
        raise RefusedError(f"tests of more than {MAX_TEST_BYTES >> 20} MiB")
    if not value.strip():
        raise RefusedError("no tests")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as cause:
        raise RefusedError(f"malformed tests: {cause}") from cause


def _merge_cases(cases: Any, record: Mapping[str, Any]) -> Tests:
    """Returns tests of a list of objects with `input` and `output`; all must be of one kind."""
    if not isinstance(cases, Sequence) or isinstance(cases, str) or not cases:
        raise RefusedError("no tests")
    if not all(isinstance(case, Mapping) and {"input", "output"} <= case.keys() for case in cases):
        raise RefusedError("malformed tests: each must have input and output")
    names = {_find_function(case, record) for case in cases}
    if len(names) > 1:
        raise RefusedError(f"tests of several kinds: {sorted(map(str, names))}")
    return {
        "inputs": [case["input"] for case in cases],
        "outputs": [case["output"] for case in cases],
        "fn_name": names.pop(),
    }


def _find_function(case: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """Returns the function that a test calls; None if it runs a program."""
    kind = case.get("testtype") or case.get("type") or _STDIN[0]
    if kind in _STDIN:
        return None
    if kind not in _FUNCTION:
        raise RefusedError(f"unknown kind of test: {kind}")
    metadata = [_parse_json(place.get("metadata") or "{}") for place in (case, record)]
    names = [place.get("func_name") for place in metadata if isinstance(place, Mapping)]
    name = next((name for name in (case.get("fn_name"), *names) if isinstance(name, str) and name), None)
    if name is None:
        raise RefusedError("tests call a function without a name")
    return name
