"""Tests of programming tasks: every published form is read, and a pickle is never run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.data.importing import case_readers
from verl_agentic.data.importing.case_readers import read_all_cases, read_tests, unpack_text
from verl_agentic.data.making.maker import RefusedError
from verl_agentic.graders.code.run_tests import CodeTests


def packed(value: object, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


class Attack:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def case(number: int, **more: object) -> dict[str, object]:
    return {"input": f"{number}", "output": f"{number + 1}", **more}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("text", ["[]", "a" * 70_000, 'ünï "quoted"\n\\u0041'])
def test_a_packed_text_is_the_one_that_unpickling_gives(text: str, protocol: int) -> None:
    assert unpack_text(packed(text, protocol)) == pickle.loads(pickle.dumps(text, protocol)) == text


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    attack = Attack(tmp_path / "made")
    for value in (attack, ["text", attack], b"[]", ["[]"], 1, ("a", "b")):
        with pytest.raises(RefusedError, match="no plain text, which is not run"):
            unpack_text(packed(value))
    assert not (tmp_path / "made").exists()


def test_what_is_no_packed_pickle_is_refused() -> None:
    good = packed("[1, 2, 3]")
    cut = base64.b64encode(base64.b64decode(good)[:-9]).decode()
    plain = base64.b64encode(zlib.compress(b"not a pickle")).decode()
    for text in ("?", "abc", good[:8], cut, plain):
        with pytest.raises(RefusedError, match="malformed tests"):
            unpack_text(text)


def test_a_packed_column_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_readers, "MAX_TEST_BYTES", 1 << 20)
    with pytest.raises(RefusedError, match="more than 1 MiB"):
        unpack_text(packed("0" * (2 << 20)))
    with pytest.raises(RefusedError, match="more than 1 MiB"):
        read_tests(json.dumps([case(1, note="0" * (2 << 20))]), {})


def test_livecodebench_scores_with_public_and_private_tests() -> None:
    public = [case(1, testtype="stdin")]
    private = [case(2, testtype="stdin"), case(3, testtype="stdin")]
    record = {"public_test_cases": json.dumps(public), "metadata": "{}"}
    for column in (json.dumps(private), packed(json.dumps(private))):
        tests = read_all_cases(column, record)
        assert tests == {"inputs": ["1", "2", "3"], "outputs": ["2", "3", "4"], "fn_name": None}


def test_functions_are_named_by_the_test_its_metadata_or_the_record() -> None:
    called = {"type": "function_call", "fn_name": "inc", "input": [1], "output": [2]}
    functional = case(1, testtype="functional")
    inner = {**functional, "metadata": {"func_name": "inc"}}
    for cases, record in (
        ([called], {}),
        ([inner], {}),
        ([functional], {"metadata": '{"func_name": "inc"}'}),
        ([functional], {"metadata": {"func_name": "inc"}}),
    ):
        tests = CodeTests.from_json(read_tests(json.dumps(cases), record))
        assert (tests.fn_name, tests.inputs) == ("inc", ["1"])


def test_lists_of_apps_are_kept() -> None:
    tests = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}
    assert read_tests(json.dumps(tests), {}) == tests
    assert read_tests({"inputs": ["1\n"], "outputs": ["2\n"]}, {})["fn_name"] is None


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("", "no tests"),
        ("[]", "no tests"),
        ("{}", "no tests"),
        ("7", "no tests"),
        ("{", "malformed tests"),
        ('{"inputs": "12", "outputs": "12"}', "malformed tests"),
        ('{"inputs": ["1", "2"], "outputs": ["1"]}', "malformed tests"),
        ('[{"input": "1"}]', "malformed tests"),
        (json.dumps([case(1, testtype="functional")]), "tests call a function without a name"),
        (json.dumps([case(1, type="checker")]), "unknown kind of test"),
        (json.dumps([case(1), case(2, type="function_call", fn_name="f")]), "tests of several kinds"),
    ],
)
def test_a_column_without_usable_tests_is_refused(column: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        read_tests(column, {})
