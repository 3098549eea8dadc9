"""Copies a run's results from the cluster's storage into the run's folder on this machine.

`status` needs only small files: metrics, goodput, the summary, the leaders' claims. A report needs all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.home import draft_of, make_private, storage_error
from cloudrec.launchers.base.outputs import json_lines, number
from cloudrec.launchers.base.protocol import Skipped
from cloudrec.launchers.base.results_store import Place, open_place
from cloudrec.safe_path import UnsafeNameError, check_name, safe_join
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_SMALL = ("metrics.jsonl", "goodput.jsonl", "summary.json", "sharding_plan.json")
_FOLDERS = ("tensorboard", "pods")
_CLAIM = re.compile(r"(\d+)-(\d+)\.json")
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, kw_only=True)
class Lead:
    """One start of all ranks, as the pod of rank 0 recorded it.

    Attributes:
        launch: the number of the launch.
        number: the number of this start, counted over all launches of the run.
        pod: the pod of rank 0, by its name below `pods/`.
        time: seconds since the epoch.
    """

    launch: int
    number: int
    pod: str
    time: float


def place_of(spec: RunSpec) -> Place:
    """Return the folder of a run's results, without a call to the store."""
    return open_place(spec.results, spec.environment)


def bring(
    run: RunFolder, spec: RunSpec, *, everything: bool = False, checkpoints: bool = False
) -> Sequence[Skipped]:
    """Copy changed files into the run's folder; return the files that were skipped.

    Pods may write any key into the storage. A key that is not a plain name below the run's folder is skipped
    and returned, and the others are copied: one bad key must not hide the other results. Without a storage
    there is nothing to copy.

    Args:
        run: the folder to copy to.
        spec: the run.
        everything: also copy TensorBoard's files and the pods' logs, which `status` does not read.
        checkpoints: also copy the checkpoints, wherever the run keeps them.

    Raises:
        StorageError: the store does not answer, or this disk is full.
        MissingExtraError: the store's client is not installed.
    """
    if not spec.storage:
        return ()
    place = place_of(spec)
    skipped = []
    for name, size in _names(place, everything=everything):
        reason = _copy(place, name, run.path, size=size)
        if reason:
            skipped.append(Skipped(name=name, reason=reason))
    return [*skipped, *(_bring_checkpoints(run, spec) if checkpoints else ())]


def _bring_checkpoints(run: RunFolder, spec: RunSpec) -> Iterator[Skipped]:
    """Copy all checkpoints, in pieces: a file may be larger than the memory.

    Commits are copied last, since a checkpoint counts from its commit on. A run that continues may remove old
    files meanwhile, with their commits; these are left out.
    """
    place, folder = open_place(spec.checkpoints, spec.environment), run.path / "checkpoints"
    sizes = place.sizes("")
    for name in sorted(sizes, key=lambda each: (_is_commit(each), each)):
        try:
            target = safe_join(folder, name)
        except UnsafeNameError as error:
            yield Skipped(name=f"checkpoints/{name}", reason=error.message)
            continue
        if _is_taken(target, folder):
            reason = f"the name {name!r} is both a file's and a folder's"
            yield Skipped(name=f"checkpoints/{name}", reason=reason)
            continue
        if target.is_file() and target.stat().st_size == sizes[name]:
            continue
        make_private(target.parent)
        draft = draft_of(target)
        try:
            place.fetch(name, draft)
            draft.replace(target)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_error(target, error) from error
        finally:
            draft.unlink(missing_ok=True)


def _is_commit(name: str) -> bool:
    return name.rpartition("/")[2].startswith("commit-")


def forget_summary(run: RunFolder, spec: RunSpec) -> None:
    """Remove the earlier launch's summary, which would be taken for that of the launch that begins."""
    run.summary_file.unlink(missing_ok=True)
    if spec.storage:
        place_of(spec).remove("summary.json")


def leads(spec: RunSpec, *, after: int) -> list[Lead]:
    """Return every start of all ranks whose number is above `after`, oldest first."""
    if not spec.storage:
        return []
    place = place_of(spec)
    found = []
    for name in sorted(place.children("leaders")):
        match = _CLAIM.fullmatch(name)
        if match and int(match[2]) > after:
            claim = _json(place.read(f"leaders/{name}"))
            found.append(
                Lead(
                    launch=int(match[1]),
                    number=int(match[2]),
                    pod=_pod(claim.get("pod")),
                    time=number(claim.get("time")),
                )
            )
    return sorted(found, key=lambda lead: lead.number)


def restart_cause(spec: RunSpec, lead: Lead) -> str:
    """Return the cause of a restart, from the ledger of the pod that led; empty if it has none."""
    text = place_of(spec).read(f"pods/{lead.pod}/events.jsonl") or b""
    causes = [
        str(event.get("cause") or "")
        for event in json_lines(text.decode(errors="replace"))
        if event.get("event") == "restarting" and number(event.get("time")) <= lead.time
    ]
    return causes[-1] if causes else ""


def newest_checkpoint(spec: RunSpec) -> int | None:
    """Return the step of the newest committed checkpoint in the store, or None."""
    place = open_place(spec.checkpoints, spec.environment)
    steps = {int(match[1]): name for name in place.children("") if (match := _STEP.fullmatch(name))}
    # From the newest: only a folder with a commit file is complete, and each folder is one request.
    for step, folder in sorted(steps.items(), reverse=True):
        names = place.children(folder)
        if any(name.startswith("commit-") and name.endswith(".json") for name in names):
            return step
    return None


def pods_with(spec: RunSpec, rank: int) -> list[str]:
    """Return the pods, by their names below `pods/`, that have uploaded lines of a rank."""
    if not spec.storage:
        return []
    wanted = f"/rank-{rank}.log"
    return [name.split("/")[1] for name in place_of(spec).sizes("pods/") if name.endswith(wanted)]


def kept_lines(spec: RunSpec, pod: str, rank: int) -> list[str]:
    """Return the lines of a rank that a pod has uploaded."""
    data = place_of(spec).read(f"pods/{pod}/rank-{rank}.log") or b""
    return data.decode("utf-8", errors="replace").splitlines()


def _names(place: Place, *, everything: bool) -> Iterator[tuple[str, int]]:
    """Yield the names of the files to copy, with their sizes in bytes."""
    there = place.children("")
    yield from ((name, there[name]) for name in _SMALL if name in there)
    if everything:
        for folder in _FOLDERS:
            yield from place.sizes(f"{folder}/").items()


def _copy(place: Place, name: str, folder: Path, *, size: int) -> str:
    """Copy a file to its name below a folder; return why the name cannot be used, or ""."""
    try:
        target = safe_join(folder, name)
    except UnsafeNameError as error:
        return error.message
    if _is_taken(target, folder):
        return f"the name {name!r} is both a file's and a folder's"
    # A listing of the store has sizes and no digests, so a file of equal size counts as unchanged.
    if target.exists() and target.stat().st_size == size:
        return ""
    data = place.read(name)
    if data is not None:
        _replace(target, data)
    return ""


def _is_taken(target: Path, folder: Path) -> bool:
    """Whether a file's name is a folder's here, or one of its folders' a file's."""
    inside = target.relative_to(folder)
    parents = (folder / parent for parent in inside.parents)  # boundary: of a checked path
    return target.is_dir() or any(parent.exists() and not parent.is_dir() for parent in parents)


def _replace(target: Path, data: bytes) -> None:
    make_private(target.parent)
    draft = draft_of(target)
    try:
        draft.unlink(missing_ok=True)  # the draft of a process that was killed, or a link
        with draft.open("xb") as file:
            file.write(data)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise storage_error(target, error) from error


def _pod(name: object) -> str:
    """Return a pod's name that was read from the store; empty if it is not the name of one folder."""
    try:
        return check_name(name) if isinstance(name, str) and "/" not in name else ""
    except UnsafeNameError:
        return ""


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        return safe_object(data or b"{}")
    except ValueError:
        return {}
