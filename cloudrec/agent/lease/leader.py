"""Decides which pod writes the run's files: the pod of rank 0, whose claim is the newest.

Each attempt's rank 0 claims the next number by creating RESULTS/leaders/LAUNCH-NUMBER.json, which only one
pod can. It then continues the metrics that the earlier leader uploaded. A pod that was replaced sees a newer
claim than its own, and writes no more of the run's files.
"""

from __future__ import annotations

import json
import random
import re
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import StorageError
from cloudrec.home import read_text, write_atomically
from cloudrec.safe_path import UnsafeNameError, safe_join
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.agent.settings import PodSettings
    from cloudrec.launchers.base.results_store import Place
    from cloudrec.launchers.base.run_folder import RunFolder

CONTINUED = ("metrics.jsonl", "goodput.jsonl", "tensorboard/")
_FOLDER = "leaders"
_CLAIM = re.compile(r"leaders/(\d+)-(\d+)\.json")
_TRIES = 20
_PAUSE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One attempt's right to the run's files.

    Args:
        launch: the number of the launch.
        number: the number of the claim, counted from 1 over all launches of the run.
        first: the number of the launch's first claim.
        pod: the pod that made it.
    """

    launch: int
    number: int
    first: int
    pod: str

    @property
    def name(self) -> str:
        """The name of its file below RESULTS."""
        return f"{_FOLDER}/{self.launch:04d}-{self.number:06d}.json"

    @property
    def attempt(self) -> int:
        """The number of restarts of the launch before it, over all pods that had rank 0."""
        return self.number - self.first


def take(place: Place, settings: PodSettings) -> Claim:
    """Claim the run's files for this pod's rank 0, and download them if another pod has written them.

    Raises:
        StorageError: RESULTS does not answer, or a later launch of the run has begun.
    """
    for _ in range(_TRIES):
        claims = _claims(place)
        if claims and claims[-1][0] > settings.launch:
            raise StorageError(
                f"launch {claims[-1][0]} of {settings.run!r} has begun, and this is launch {settings.launch}",
                remedy="end this pod: it was replaced",
            )
        number = claims[-1][1] + 1 if claims else 1
        first = next((each for launch, each in claims if launch == settings.launch), number)
        claim = Claim(launch=settings.launch, number=number, first=first, pod=settings.pod)
        text = json.dumps({**asdict(claim), "time": time.time()})
        if place.create(claim.name, text.encode()):
            # A pod that led before has the newest files on its disk; a download would replace newer lines.
            if not claims or _pod_of(place, claims[-1]) != settings.pod or not _has_files(settings.folder):
                restore(place, settings.folder)
            write_atomically(_note(settings.folder), json.dumps(asdict(claim)))
            return claim
    raise StorageError(
        f"{place.uri}: other pods have claimed the run's files {_TRIES} times in the meantime",
        remedy="check that no two runs have the same name and storage",
    )


def held(folder: RunFolder) -> Claim | None:
    """Return this pod's newest claim, which may be outdated; None if it has none."""
    try:
        return record_of(Claim, safe_object(read_text(_note(folder))))
    except (OSError, ValueError):
        return None


def is_newest(place: Place, claim: Claim) -> bool:
    """Return whether no pod has made a later claim."""
    claims = _claims(place)
    return bool(claims) and claims[-1] == (claim.launch, claim.number)


def has_begun(place: Place, *, launch: int) -> bool:
    """Return whether a rank 0 of this launch has started, in whichever pod."""
    return any(number == launch for number, _ in _claims(place))


def is_finished(place: Place, *, launch: int) -> bool:
    """Return whether this launch's leader has recorded that the run has done all its work."""
    # A claim of another launch: the summary may be an earlier launch's.
    claims = _claims(place)
    if not claims or claims[-1][0] != launch:
        return False
    try:
        summary = safe_object(place.read("summary.json") or b"{}")
    except ValueError:
        return False
    return bool(summary.get("status") == "finished")


def end_together(
    place: Place, settings: PodSettings, *, within_s: float, is_stopped: Callable[[], bool]
) -> None:
    """Record that a finished run's files are uploaded, as its leader; as another pod, wait for that record.

    Args:
        place: RESULTS.
        settings: the pod's settings.
        within_s: the longest wait in seconds.
        is_stopped: returns whether this pod must end now.
    """
    deadline = time.monotonic() + within_s
    name = f"{_FOLDER}/{settings.launch:04d}-complete.json"
    claim = held(settings.folder)
    with suppress(StorageError):  # the pod's own files are uploaded, and its work is done
        if claim and is_newest(place, claim):
            place.write(name, json.dumps({"pod": settings.pod, "time": time.time()}).encode())
            return
        if not any(launch == settings.launch for launch, _ in _claims(place)):
            return  # a program that has no rank 0
        while place.read(name) is None and not is_stopped() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S * (0.5 + random.random()))  # noqa: S311 - so that pods do not ask together


def restore(place: Place, folder: RunFolder) -> None:
    """Download the files of earlier pods that the trainer continues."""
    for prefix in CONTINUED:
        names = place.sizes(prefix) if prefix.endswith("/") else [prefix]
        for name in names:
            try:
                target = safe_join(folder.path, name)
            except UnsafeNameError:  # the trainer writes no such name, so it needs none
                continue
            data = place.read(name)
            if data is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)


def _claims(place: Place) -> list[tuple[int, int]]:
    """Return launch and number of every claim, in their order."""
    matches = (_CLAIM.fullmatch(name) for name in place.sizes(f"{_FOLDER}/"))
    return sorted((int(match[1]), int(match[2])) for match in matches if match)


def _pod_of(place: Place, claim: tuple[int, int]) -> str:
    data = place.read(f"{_FOLDER}/{claim[0]:04d}-{claim[1]:06d}.json")
    try:
        return str(safe_object(data or b"{}").get("pod", ""))
    except ValueError:
        return ""


def _has_files(folder: RunFolder) -> bool:
    return folder.metrics_file.exists()


def _note(folder: RunFolder) -> Path:
    return folder.path / ".claim.json"
