"""The notebooks of the docs run as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@notebooks
def test_a_notebook_stores_no_outputs(path: Path) -> None:
    codes = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert codes and not any(cell["outputs"] or cell["execution_count"] for cell in codes)


@notebooks
def test_the_code_of_a_notebook_compiles(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and not code.startswith("%%"):
            compile(code, path.name, "exec")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@notebooks
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient")
    notebook = pytest.importorskip("nbformat").read(path, as_version=4)
    metadata: dict[str, Any] = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=5400, kernel_name="python3", resources=metadata).execute()
    assert not [
        output for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "error"
    ]
