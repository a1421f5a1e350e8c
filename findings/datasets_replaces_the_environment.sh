#!/usr/bin/env bash
# datasets 5.2.0: `map` and `filter` with num_proc replace `os.environ` by a copy.
#
# verl's RLHFDataset filters long prompts with num_proc=1. Code that took `os.environ` before that (`from os import
# environ`, a default argument, an attribute of a class) holds another object than code that takes it later.
#
#   1. `os.environ` after filter(num_proc=1):           expected the same object    seen  another one
#   2. a variable set in it afterwards:                 expected in both            seen  only in the new one
#   3. the same variable in a child process:            expected, and seen, as set
#   4. rich 15.0.0, imported before, with COLUMNS=300:  expected 300 columns        seen  others: it reads the old object
#
# Remedy: `import os`, and read `os.environ` where it is used. Tests put the object back after each test.
#
# Downloads about 100 MB. Exit code 1 if one of them has changed.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0 rich==15.0.0

cat > "$folder/show.py" <<'PYTHON'
import os
import subprocess
import sys

import datasets
from rich.console import Console

datasets.disable_progress_bars()
print(f"datasets {datasets.__version__}")
changed, before = [], os.environ


def show(number, what, seen, expected_seen):
    print(f"{number}. {what}: {seen!r}")
    if seen != expected_seen:
        changed.append(number)


def is_short(row):
    return row["length"] < 2


rows = datasets.Dataset.from_list([{"length": 1}, {"length": 2}])
rows.filter(is_short)
show(1, "the same object without num_proc", os.environ is before, True)
rows.filter(is_short, num_proc=1)
show(1, "the same object with num_proc=1", os.environ is before, False)
os.environ["COLUMNS"] = "300"
show(2, "set in the new one, in the old one", ("COLUMNS" in os.environ, before.get("COLUMNS") == "300"), (True, False))
child = [sys.executable, "-c", "import os; print(os.environ['COLUMNS'])"]
show(3, "in a child process", subprocess.check_output(child, text=True).strip(), "300")
os.environ["TERM"] = before["TERM"] = "xterm"
show(4, "rich has 300 columns", Console(file=sys.stderr, force_terminal=True).width == 300, False)
print(f"changed: {changed}" if changed else "all as described")
raise SystemExit(bool(changed))
PYTHON
env -u COLUMNS "$folder/env/bin/python" -W ignore "$folder/show.py" </dev/null
