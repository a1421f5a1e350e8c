"""A rank of engines with a copy of their weights: a critic with its target, then an actor with its teacher.

Its argument is a folder with a model, FOLDER/model. Writes FOLDER/<copy>_<rank>.json: claim -> whether it holds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import target_ranks
import teacher_ranks
from verl.utils.distributed import initialize_global_process_group

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    _, rank, _ = initialize_global_process_group(120)
    for copy, facts_of in (("target", target_ranks.facts_of), ("teacher", teacher_ranks.facts_of)):
        print(copy, file=sys.stderr, flush=True)
        (folder / f"{copy}_{rank}.json").write_text(json.dumps(facts_of(folder, rank)))
