"""Checks whether a pod can read a dataset and write results.

`cloudrec.agent probe --dataset URI --results URI` prints one JSON line with the result of each check, and a
sentence for the first one that failed. It exits with 0, 65 (the dataset) or 69 (the results).
"""

from __future__ import annotations

import argparse
import json
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.agent.settings import TERMINATION_LOG
from cloudrec.agent.upload.staging import list_files
from cloudrec.errors import CloudrecError, DataError, PreflightError, StorageError
from cloudrec.launchers.base.results_store import open_place
from cloudrec_contract.exit_codes import BAD_DATA, FINISHED, UNFIT_NODE
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = 128  # bytes at the start of a file, enough for the magic of an npy header


def main(arguments: list[str]) -> int:
    """Run the checks and print the results; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent probe", allow_abbrev=False)
    parser.add_argument("--dataset", default="", help="URI of a dataset's folder")
    parser.add_argument("--results", default="", help="URI of a folder for results")
    options = parser.parse_args(arguments)
    answers: dict[str, object] = {"node": os.environ.get("NODE_NAME", "")}
    checks: list[tuple[str, str, Callable[[str], dict[str, object]], int]] = [
        ("dataset", options.dataset, read_dataset, BAD_DATA),
        ("results", options.results, write_results, UNFIT_NODE),
    ]
    code, sentence = FINISHED, ""
    for name, uri, check, failure in checks:
        if not uri:
            continue
        try:
            answers[name] = {"uri": uri, "ok": True, **check(uri)}
        except CloudrecError as error:
            answers[name] = {"uri": uri, "ok": False, "error": error.message, "remedy": error.remedy}
            if not sentence:
                code, sentence = failure, _sentence(error)
    print(json.dumps(answers), flush=True)
    if sentence:
        print(f"error: {sentence}", flush=True)
        _write_termination_log(sentence)
    return code


def read_dataset(uri: str) -> dict[str, object]:
    """Read dataset.json and the head of one file; return the number of files, their bytes, and the digest.

    Raises:
        DataError: the dataset is missing or damaged.
        StorageError: the store refuses.
    """
    place = open_place(uri)
    text, files = list_files(place)
    if not files:
        raise DataError(f"{uri}: its dataset.json names no file")
    head = place.read(files[0].name, limit=_HEAD)
    if head is None:
        raise DataError(f"{uri}/{files[0].name}: is not there", remedy="push it again: `cloudrec data push`")
    # Without a dataset.json the files may be of any format.
    if text is not None and not head.startswith(b"\x93NUMPY"):
        raise DataError(
            f"{uri}/{files[0].name}: is no npy file", remedy="push it again: `cloudrec data push`"
        )
    digest = safe_object(text).get("digest") if text is not None else None  # list_files has read it before
    return {"files": len(files), "bytes": sum(file.size for file in files), "digest": digest}


def write_results(uri: str) -> dict[str, object]:
    """Write, read and remove a small file; return {}.

    Raises:
        StorageError: the store refuses one of these calls.
        PreflightError: the file's content differs when it is read.
    """
    place, name, data = open_place(uri), f"probe/{uuid.uuid4().hex}", os.urandom(64)
    place.write(name, data)
    try:
        if place.read(name) != data:
            raise PreflightError(
                f"{uri}: a file that was written there has another content when it is read",
                remedy="check the store, and any cache or proxy before it",
            )
    finally:
        with suppress(StorageError):  # so that it does not hide the error of the read
            place.remove(name)
    place.remove(name)  # shows whether deleting is allowed
    return {}


def _sentence(error: CloudrecError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def _write_termination_log(sentence: str) -> None:
    """Write the sentence to the file that the kubelet reads as the termination message; only in a pod."""
    if TERMINATION_LOG.exists():
        with suppress(OSError):
            TERMINATION_LOG.write_text(sentence, encoding="utf-8")
