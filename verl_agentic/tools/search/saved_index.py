"""Indexes that are saved in the folder of their corpus: built once for its content, and published as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from verl_agentic.tools.search.corpus import Corpus
from verl_agentic.tools.search.retriever import Passage

logger = logging.getLogger(__name__)
_LOCATIONS = "locations.npy"


def save_once(corpus: Corpus, kind: str, name: str, build: Callable[[Path], None]) -> Path | None:
    """Returns the folder `kind/name` of a corpus; builds it if it is missing, and then removes others of its kind.

    Only one process of a machine builds at a time. Returns None, with a warning, if the corpus is not writable.

    Args:
        corpus: the corpus.
        kind: folder of all indexes of a kind.
        name: changes with the content of the corpus, the format and the model.
        build: writes the index into a new folder.
    """
    saved = corpus.folder / kind / name
    try:
        if not saved.is_dir():
            with _lock_folder(saved.parent):
                if not saved.is_dir():  # another process may have built it
                    _build_index(saved, build)
    except OSError as error:
        logger.warning(
            "the index of %s cannot be saved (%s): it is kept in memory, once per process", corpus.folder, error
        )
        return None
    return saved


@contextlib.contextmanager
def noting_locations(corpus: Corpus, folder: Path) -> Iterator[Iterator[Passage]]:
    """Gives the passages of a corpus, and saves in the folder of an index where they are; see `open_reader`."""
    locations: list[tuple[int, int, int]] = []

    def iter_passages() -> Iterator[Passage]:
        for location, passage in corpus.passages():
            locations.append(location)
            yield passage

    yield iter_passages()
    np.save(folder / _LOCATIONS, np.array(locations, dtype=np.int64))
    logger.info("built an index of %s: %d passages", corpus.folder, len(locations))


def open_reader(corpus: Corpus, saved: Path) -> Callable[[int], Passage]:
    """Returns the function number -> passage of a saved index."""
    locations = np.load(saved / _LOCATIONS, mmap_mode="r")
    return lambda number: corpus.read(tuple(locations[number].tolist()))


def _build_index(target: Path, build: Callable[[Path], None]) -> None:
    for stale in target.parent.iterdir():
        if stale.is_dir():
            shutil.rmtree(stale)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=target.parent))
    build(partial)
    partial.chmod(0o755)
    partial.rename(target)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder of indexes; the lock ends with its process."""
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
