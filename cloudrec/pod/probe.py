"""Whether a pod can read a dataset and write results: `cloudrec.pod probe --dataset URI --results URI`.

It prints one JSON line with every answer, and a sentence for the first that is no; 0, 65 or 69 is its end.
"""

from __future__ import annotations

import argparse
import json
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, DataError, PreflightError, StorageError
from cloudrec.launch.place import open_place
from cloudrec.launch.verdict import BAD_DATA
from cloudrec.pod.codes import FINISHED, UNFIT
from cloudrec.pod.settings import TERMINATION_LOG
from cloudrec.pod.stage import list_files

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = 128  # bytes of a file's beginning: its header


def main(arguments: list[str]) -> int:
    """Ask, print, and return the code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.pod probe", allow_abbrev=False)
    parser.add_argument("--dataset", default="", help="URI of a dataset's folder")
    parser.add_argument("--results", default="", help="URI of a folder for results")
    options = parser.parse_args(arguments)
    answers: dict[str, object] = {"node": os.environ.get("NODE_NAME", "")}
    asked: list[tuple[str, str, Callable[[str], dict[str, object]], int]] = [
        ("dataset", options.dataset, read_dataset, BAD_DATA),
        ("results", options.results, write_results, UNFIT),
    ]
    code, sentence = FINISHED, ""
    for name, uri, question, failure in asked:
        if not uri:
            continue
        try:
            answers[name] = {"uri": uri, "ok": True, **question(uri)}
        except CloudrecError as error:
            answers[name] = {"uri": uri, "ok": False, "error": error.message, "remedy": error.remedy}
            if not sentence:
                code, sentence = failure, _sentence(error)
    print(json.dumps(answers), flush=True)
    if sentence:
        print(f"error: {sentence}", flush=True)
        _leave_word(sentence)
    return code


def read_dataset(uri: str) -> dict[str, object]:
    """Read a dataset's description and the head of one of its files; return what it holds.

    Raises:
        DataError: it is not there, or not what it should be.
        StorageError: the store refuses.
    """
    place = open_place(uri)
    text, files = list_files(place)
    if not files:
        raise DataError(f"{uri}: its dataset.json names no file")
    head = place.read(files[0].name, limit=_HEAD)
    if head is None:
        raise DataError(f"{uri}/{files[0].name}: is not there", remedy="push it again: `cloudrec data push`")
    if text is not None and not head.startswith(b"\x93NUMPY"):
        raise DataError(
            f"{uri}/{files[0].name}: is no npy file", remedy="push it again: `cloudrec data push`"
        )
    digest = json.loads(text).get("digest") if text is not None else None
    return {"files": len(files), "bytes": sum(file.size for file in files), "digest": digest}


def write_results(uri: str) -> dict[str, object]:
    """Write, read and remove a small file; return nothing of note.

    Raises:
        StorageError: the store refuses one of them.
        PreflightError: what was read is not what was written.
    """
    place, name, data = open_place(uri), f"probe/{uuid.uuid4().hex}", os.urandom(64)
    place.write(name, data)
    try:
        if place.read(name) != data:
            raise PreflightError(f"{uri}: what was written there reads back as something else")
    finally:
        with suppress(StorageError):
            place.remove(name)
    place.remove(name)
    return {}


def _sentence(error: CloudrecError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def _leave_word(sentence: str) -> None:
    """Leave the sentence where the kubelet looks for it, in a pod."""
    if TERMINATION_LOG.exists():
        with suppress(OSError):
            TERMINATION_LOG.write_text(sentence, encoding="utf-8")
