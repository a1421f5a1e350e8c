#!/usr/bin/env bash
# datasets 5.2.0: values of rows change on their way into verl's dataset, without an error.
#
# verl's RLHFDataset loads parquet and JSON lines with `datasets.load_dataset`.
#
#   1. JSON lines, a column of ISO dates:        expected texts            seen  datetime (one "unknown" keeps the texts)
#   2. JSON lines, integers above 2^63:          expected integers         seen  floats
#   3. JSON lines, rows with different keys:     expected 0.123456789012   seen  0.123456789, in all columns of the file
#   4. JSON lines, "12" beside an object:        expected "12"             seen  12
#   5. from_generator(...).to_parquet, objects with different keys: a column of type extension<arrow.json>. datasets
#      reads objects of it,                      expected objects          seen  texts in pandas and pyarrow
#   6. the same with an integer above 2^63:      expected objects          seen  texts of JSON in datasets as well
#
# Remedies: write parquet with a schema, hold such values as JSON text, and read JSON columns with `datasets`.
#
# Downloads about 100 MB. Exit code 1 if one of them has changed.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1

cat > "$folder/show.py" <<'PYTHON'
import datetime
import json
import sys
from pathlib import Path

import datasets
import pandas
import pyarrow
import pyarrow.parquet

datasets.disable_progress_bars()
folder, changed = Path(sys.argv[1]), []
print(f"datasets {datasets.__version__}, pyarrow {pyarrow.__version__}, pandas {pandas.__version__}")


def load(kind, name):
    return list(datasets.load_dataset(kind, data_files=str(folder / name), cache_dir=str(folder / "cache"))["train"])


def load_lines(name, rows):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load("json", name)


def show(number, what, seen, expected_seen):
    print(f"{number}. {what}: {seen!r}")
    if repr(seen) != repr(expected_seen):
        changed.append(number)


day = datetime.datetime(2024, 1, 2)
dates = [{"truth": "2024-01-02"}, {"truth": "2024-01-02"}]
show(1, "dates", [row["truth"] for row in load_lines("dates.jsonl", dates)], [day, day])
dates.append({"truth": "unknown"})
show(1, "dates and a text", [row["truth"] for row in load_lines("texts.jsonl", dates)],
     ["2024-01-02", "2024-01-02", "unknown"])
show(2, "2**64", load_lines("long.jsonl", [{"truth": 2**64}])[0]["truth"], float(2**64))
rows = [{"truth": 0.123456789012, "extra": {"a": 1}}, {"truth": 1.5, "extra": {"b": 1}}]
show(3, "a float beside other keys", load_lines("keys.jsonl", rows)[0]["truth"], 0.123456789)
show(4, "a text beside an object", load_lines("mixed.jsonl", [{"truth": "12"}, {"truth": {"a": 1}}])[0]["truth"], 12)


def make_rows():
    yield {"extra": {"a": 1}}
    yield {"extra": {"b": "x"}}


made = datasets.Dataset.from_generator(make_rows, cache_dir=str(folder / "cache"))
made.to_parquet(str(folder / "made.parquet"))
table = pyarrow.parquet.read_table(folder / "made.parquet")
show(5, "type", str(table.schema.field("extra").type), "extension<arrow.json>")
show(5, "datasets", load("parquet", "made.parquet")[0]["extra"], {"a": 1})
show(5, "pyarrow", table.to_pylist()[0]["extra"], '{"a":1}')
show(5, "pandas", pandas.read_parquet(folder / "made.parquet")["extra"][0], '{"a":1}')


def make_long_rows():
    yield {"extra": {"a": 1}}
    yield {"extra": {"b": 2**64}}


made = datasets.Dataset.from_generator(make_long_rows, cache_dir=str(folder / "cache"))
made.to_parquet(str(folder / "long.parquet"))
show(6, "datasets", load("parquet", "long.parquet")[0]["extra"], '{"a":1}')
print(f"changed: {changed}" if changed else "all as described")
raise SystemExit(bool(changed))
PYTHON
"$folder/env/bin/python" -W ignore "$folder/show.py" "$folder"
