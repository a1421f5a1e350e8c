"""No secret of the environment stands in a log, neither as text nor as token ids that spell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from verl_agentic.log.lines import Lines, read_lines
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.reader import load
from verl_agentic.log.run_files import write_config
from verl_agentic.log.secrets import Secrets, own_secrets, withhold
from verl_agentic.log.writer import LogWriter

VALUE = "hunter2-hunter2"
ENVIRONMENT = {
    "OPENAI_API_KEY": VALUE,
    "MY_PASSWORD": "short",
    "TOKENIZERS_PARALLELISM": "false-false",
    "HOME": "/home/someone",
}


def test_values_are_replaced_by_names_however_deep_they_stand() -> None:
    secrets = Secrets(ENVIRONMENT)
    told = {"a": [f"x{VALUE}y", {"b": (VALUE,)}], "n": [1, 2], "f": 0.5, "short": "short", "home": "/home/someone"}
    assert secrets.removed(told) == {
        **told,
        "a": ["x[OPENAI_API_KEY]y", {"b": ("[OPENAI_API_KEY]",)}],
    }
    assert secrets and not Secrets({"HOME": VALUE})


def test_a_secret_within_json_is_replaced_too() -> None:
    pem = 'BEGIN "KEY"\nabc\n'
    told = json.dumps({"text": f"x{pem}y"})
    assert json.loads(Secrets({"SERVICE_KEY": pem}).removed(told)) == {"text": "x[SERVICE_KEY]y"}


def test_a_line_that_could_not_be_written_whole_takes_no_other_with_it(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "x.jsonl")
    lines.append({"n": 1})
    lines.append({"n": 2})
    (tmp_path / "x.jsonl").write_text((tmp_path / "x.jsonl").read_text()[:-3])  # cut off by a full disk
    lines._is_well = False
    lines.append({"n": 3})
    lines.append({"n": 4})
    assert [line["n"] for line in read_lines(tmp_path / "x.jsonl")] == [1, 3, 4]


def test_token_ids_that_spell_a_secret_are_withheld_span_by_span() -> None:
    ids = [ord(c) for c in f"ab{VALUE}cd"]
    kept = withhold(
        ids, [(0, 2), (2, len(ids) - 2), (len(ids) - 2, len(ids))], decode=_decode, secrets=Secrets(ENVIRONMENT)
    )
    assert kept == [ord("a"), ord("b"), *[-1] * len(VALUE), ord("c"), ord("d")]


def test_no_file_of_a_run_holds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", VALUE)
    own_secrets.cache_clear()
    try:
        log = LogWriter("trajectories", LogOptions(dir=str(tmp_path)))
        log.append(lambda: [{"uid": "g", "error": f"refused: {VALUE}", "turns": [{"index": 0, "text": VALUE}]}])
        log.close()
        Lines(tmp_path / "health.jsonl").append({"message": f"{VALUE}!"})
        write_config(tmp_path, {"a": {"api_key": "plain-value", "url": f"http://u:{VALUE}@h"}, "token": None, "n": [1]})
    finally:
        own_secrets.cache_clear()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert load(tmp_path)["error"].tolist() == ["refused: [SOME_SECRET]"]
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written == {"a": {"api_key": "[removed]", "url": "http://u:[SOME_SECRET]@h"}, "token": None, "n": [1]}


def _decode(ids: list[int]) -> str:
    return "".join(map(chr, ids))
