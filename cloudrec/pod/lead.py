"""Which pod writes the run's own files: the one with rank 0, since it said so last.

Each attempt's rank 0 claims the next number by creating RESULTS/leaders/LAUNCH-NUMBER.json, which only one
can, and goes on with the metrics that the leader before it kept there. A pod that has been replaced sees a
claim newer than its own, and keeps its fingers off.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import StorageError
from cloudrec.home import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.place import Place
    from cloudrec.pod.settings import PodSettings

CONTINUED = ("metrics.jsonl", "goodput.jsonl", "tensorboard/")
_FOLDER = "leaders"
_CLAIM = re.compile(r"leaders/(\d+)-(\d+)\.json")
_TRIES = 20


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One attempt's right to the run's files.

    Args:
        launch: which launch of the run.
        number: its place among all claims of the run, counted from 1.
        first: the number of the launch's first claim.
        pod: whose it is.
    """

    launch: int
    number: int
    first: int
    pod: str

    @property
    def name(self) -> str:
        """Where it is kept below RESULTS."""
        return f"{_FOLDER}/{self.launch:04d}-{self.number:06d}.json"

    @property
    def attempt(self) -> int:
        """How often the launch was started again before it, whichever pod had rank 0 then."""
        return self.number - self.first


def take(place: Place, settings: PodSettings) -> Claim:
    """Claim the run's files for this pod's rank 0, and bring them here if another pod had them last.

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
            if not claims or _pod_of(place, claims[-1]) != settings.pod or not _has_files(settings.folder):
                restore(place, settings.folder)
            write_atomically(_note(settings.folder), json.dumps(asdict(claim)))
            return claim
    raise StorageError(f"{place.uri}: other pods claim the run's files again and again")


def held(folder: RunFolder) -> Claim | None:
    """Return the newest claim that a rank of this pod made, whether it still stands or not."""
    try:
        return Claim(**json.loads(_note(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stands(place: Place, claim: Claim) -> bool:
    """Tell whether nobody has claimed the run's files since."""
    claims = _claims(place)
    return bool(claims) and claims[-1] == (claim.launch, claim.number)


def is_finished(place: Place, *, launch: int) -> bool:
    """Tell whether this launch's leader has left word that the run has done all its work."""
    claims = _claims(place)
    if not claims or claims[-1][0] != launch:
        return False
    try:
        summary = json.loads(place.read("summary.json") or b"{}")
    except ValueError:
        return False
    return bool(summary.get("status") == "finished")


def restore(place: Place, folder: RunFolder) -> None:
    """Bring what earlier pods have written, for the trainer to go on with."""
    for prefix in CONTINUED:
        names = place.sizes(prefix) if prefix.endswith("/") else [prefix]
        for name in names:
            data = place.read(name)
            if data is not None:
                target = folder.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)


def _claims(place: Place) -> list[tuple[int, int]]:
    """Return launch and number of every claim, in their order."""
    matches = (_CLAIM.fullmatch(name) for name in place.sizes(f"{_FOLDER}/"))
    return sorted((int(match[1]), int(match[2])) for match in matches if match)


def _pod_of(place: Place, claim: tuple[int, int]) -> str:
    data = place.read(f"{_FOLDER}/{claim[0]:04d}-{claim[1]:06d}.json")
    try:
        return str(json.loads(data or b"{}").get("pod", ""))
    except ValueError:
        return ""


def _has_files(folder: RunFolder) -> bool:
    return folder.metrics_file.exists()


def _note(folder: RunFolder) -> Path:
    return folder.path / ".claim.json"
