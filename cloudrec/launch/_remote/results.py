"""What a run leaves in the storage of where it is, brought into the run's folder on this machine.

Whoever watches a run needs only small files: metrics, goodput, the summary, who led. A report needs all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.home import make_private, storage_error
from cloudrec.launch.outputs import flag_value, json_lines
from cloudrec.launch.place import Place, open_place

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

_SMALL = ("metrics.jsonl", "goodput.jsonl", "summary.json", "sharding_plan.json")
_FOLDERS = ("tensorboard", "pods")
_CLAIM = re.compile(r"(\d+)-(\d+)\.json")
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, kw_only=True)
class Lead:
    """One start of all ranks, as the pod of rank 0 wrote it down.

    Attributes:
        launch: which launch of the run.
        number: its place among all of the run.
        pod: the pod of rank 0, as `pods/` names it.
        time: when, seconds since the epoch.
    """

    launch: int
    number: int
    pod: str
    time: float


def results_of(spec: RunSpec) -> str:
    """Return the URI of the folder in the cluster's storage that holds what the run leaves."""
    return f"{spec.storage.rstrip('/')}/runs/{spec.name}" if spec.storage else ""


def checkpoints_of(spec: RunSpec) -> str:
    """Return the URI of the run's checkpoints: the user's own choice, or a folder of the results."""
    config = spec.trainer_config
    named = config.get("checkpoint_dir") or config.get("checkpoint-dir")
    named = flag_value(spec.trainer_flags, "checkpoint_dir") or named
    return str(named) if named else f"{results_of(spec)}/checkpoints"


def place_of(spec: RunSpec) -> Place:
    """Return the folder of a run's results; nothing is asked yet."""
    return open_place(results_of(spec), spec.environment)


def bring(run: RunFolder, spec: RunSpec, *, everything: bool = False) -> None:
    """Copy what has changed into the run's folder; nothing for a cluster without storage.

    Args:
        run: where to.
        spec: the run.
        everything: TensorBoard's files and the pods' logs too, not only what `status` reads.

    Raises:
        StorageError: the store does not answer, or this disk is full.
        MissingExtraError: the store's client is not installed.
    """
    if not spec.storage:
        return
    place = place_of(spec)
    there = place.children("")
    for name in _SMALL:
        if name in there:
            _copy(place, name, run.path / name, size=there[name])
    if everything:
        for folder in _FOLDERS:
            for name, size in place.sizes(f"{folder}/").items():
                _copy(place, name, run.path / name, size=size)


def forget_summary(run: RunFolder, spec: RunSpec) -> None:
    """Remove the summary of the launch before, which would tell of a launch that goes on."""
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
            told = _json(place.read(f"leaders/{name}"))
            found.append(
                Lead(
                    launch=int(match[1]),
                    number=int(match[2]),
                    pod=str(told.get("pod", "")),
                    time=float(told.get("time") or 0.0),
                )
            )
    return sorted(found, key=lambda lead: lead.number)


def restart_cause(spec: RunSpec, lead: Lead) -> str:
    """Return what the pod that led says of why the ranks were started again; empty where it says nothing."""
    text = place_of(spec).read(f"pods/{lead.pod}/events.jsonl") or b""
    told = [
        str(event.get("cause") or "")
        for event in json_lines(text.decode(errors="replace"))
        if event.get("event") == "restarting" and float(event.get("time") or 0.0) <= lead.time
    ]
    return told[-1] if told else ""


def newest_checkpoint(spec: RunSpec) -> int | None:
    """Return the step of the newest committed checkpoint in the store, or None."""
    place = open_place(checkpoints_of(spec), spec.environment)
    steps = {int(match[1]): name for name in place.children("") if (match := _STEP.fullmatch(name))}
    for step, folder in sorted(steps.items(), reverse=True):
        names = place.children(folder)
        if any(name.startswith("commit-") and name.endswith(".json") for name in names):
            return step
    return None


def pods_with(spec: RunSpec, rank: int) -> list[str]:
    """Return the pods, as `pods/` names them, that have kept lines of a rank."""
    if not spec.storage:
        return []
    wanted = f"/rank-{rank}.log"
    return [name.split("/")[1] for name in place_of(spec).sizes("pods/") if name.endswith(wanted)]


def kept_lines(spec: RunSpec, pod: str, rank: int) -> list[str]:
    """Return what a pod has kept of a rank's lines."""
    data = place_of(spec).read(f"pods/{pod}/rank-{rank}.log") or b""
    return data.decode("utf-8", errors="replace").splitlines()


def _copy(place: Place, name: str, target: Path, *, size: int) -> None:
    if target.exists() and target.stat().st_size == size:
        return
    data = place.read(name)
    if data is None:
        return
    make_private(target.parent)
    draft = target.with_name(f".{target.name}.new")
    try:
        draft.write_bytes(data)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise storage_error(target, error) from error


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
