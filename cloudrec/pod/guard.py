"""Hold a cluster to its end, from inside of it: when it has come, runs checkpoint and end, and nodes go.

One round: the end is read from the guard's own ConfigMap, where `up` put it. Once it has come, each run is
suspended, so that its trainers commit a checkpoint within their grace; then what trains is scaled to nothing,
as far as the cloud lets the guard. What was done is written into the ConfigMap. Rounds go on, since somebody
might start another run, and since the cloud may have been busy.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cloudrec import providers
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.home import Home
from cloudrec.kube.errors import AbsentError
from cloudrec.launch import launchers
from cloudrec.launch._kube.launcher import KubeLauncher
from cloudrec.pod import inside
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cloudrec.kube.client import Kube
    from cloudrec.provider import Halt

NAME = "cloudrec-guard"  # of everything that is the guard's
NOTE, RECORD = "guard.json", "state.json"  # in its ConfigMap: what it is told, and what it did
_RUNS = "app.kubernetes.io/managed-by=cloudrec,cloudrec/run"
_LONGEST_WAIT_S = 480.0  # for checkpoints: one round has ten minutes
_SPARE_S = 15.0  # beyond a pod's own grace
_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Note:
    """What the guard is told.

    Attributes:
        cluster: the cluster, as its provider knows it from inside.
        hourly_usd: what it costs an hour; 0 where nobody knows.
        began: since when it costs that, ISO 8601; empty where nobody knows.
    """

    cluster: ClusterSpec
    hourly_usd: float = 0.0
    began: str = ""

    def end(self) -> datetime | None:
        """Return when the cluster ends: the moment that `up` worked out, or once the budget is spent."""
        ends = [datetime.fromisoformat(self.cluster.expires)] if self.cluster.expires else []
        if self.cluster.budget_usd is not None and self.hourly_usd > 0 and self.began:
            hours = self.cluster.budget_usd / self.hourly_usd
            ends.append(datetime.fromisoformat(self.began) + timedelta(hours=hours))
        return min(ends, default=None)

    def to_json(self) -> str:
        """Return it as the ConfigMap holds it."""
        cluster = self.cluster.model_dump(mode="json")
        return json.dumps({"cluster": cluster, "hourly_usd": self.hourly_usd, "began": self.began})

    @classmethod
    def of(cls, text: str) -> Note:
        """Read it; UsageError where it is none."""
        try:
            document = json.loads(text)
            cluster = ClusterSpec.model_validate(document["cluster"])
            return cls(cluster=cluster, hourly_usd=float(document["hourly_usd"]), began=document["began"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"the guard's note cannot be read: {error}", remedy="`cloudrec up` writes it anew"
            ) from error


@dataclass(frozen=True, kw_only=True)
class Guard:
    """One round's tools.

    Attributes:
        kube: the cluster.
        namespace: where the runs and the guard are.
        halt: scales what trains to nothing.
        now: the time.
        report: is told what is done.
    """

    kube: Kube
    namespace: str
    halt: Callable[[ClusterSpec], Halt]
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    report: Callable[[str], None] = field(default=lambda line: print(line, flush=True))

    def round(self) -> bool:
        """Do what is due; tell whether all of it is done."""
        found = self.kube.get("ConfigMap", NAME, namespace=self.namespace)
        if found is None:
            raise PreflightError(
                f"there is no ConfigMap {self.namespace}/{NAME}", remedy="`cloudrec up` writes it"
            )
        data = found.get("data") or {}
        note = Note.of(data.get(NOTE, ""))
        end = note.end()
        if end is None or self.now() < end:
            self.report(f"{note.cluster.title} ends {end.isoformat()}" if end else "there is no end")
            return True
        self._end_runs()
        return self._halt(note, json.loads(data.get(RECORD) or "{}"))

    def _end_runs(self) -> None:
        """Have every run checkpoint and end, and wait as long as their pods may take for it."""
        began, ended = time.monotonic(), False
        for launcher in launchers().values():
            if isinstance(launcher, KubeLauncher):
                ended |= self._suspend(launcher)
        grace_s = self._grace_s() if ended else 0.0
        while ended and self._pods():
            if time.monotonic() - began > min(grace_s + _SPARE_S, _LONGEST_WAIT_S):
                self.report(f"{len(self._pods())} pods do not end; what they committed before is kept")
                break
            time.sleep(_POLL_S)

    def _suspend(self, launcher: KubeLauncher) -> bool:
        """Suspend a launcher's runs that are under way; tell whether there were any."""
        engine = launcher.engine
        try:
            jobs = self.kube.list(engine.kind, namespace=self.namespace, labels=_RUNS)
        except (AbsentError, UsageError):  # an operator's kind, without the operator
            return False
        under_way = [
            job
            for job in jobs
            if engine.phase(job).state not in ("succeeded", "failed") and not engine.is_suspended(job)
        ]
        for job in under_way:
            name = job["metadata"]["name"]
            self.report(f"run {name}: its cluster's end has come; it is suspended")
            self.kube.patch(engine.kind, name, engine.suspension(), namespace=self.namespace)
        return bool(under_way)

    def _pods(self) -> list[dict[str, Any]]:
        """Return the pods that train; those that have ended stay to be read."""
        pods = self.kube.list("Pod", namespace=self.namespace, labels=f"{_RUNS},cloudrec/role=trainer")
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]

    def _grace_s(self) -> float:
        return max(
            (pod["spec"].get("terminationGracePeriodSeconds") or 30 for pod in self._pods()), default=0
        )

    def _halt(self, note: Note, record: Mapping[str, Any]) -> bool:
        """Let the nodes go, until the cloud has taken all of it; what was done once is not done again."""
        if record.get("halted"):
            return True
        done = self.halt(note.cluster)
        for pool in done.pools:
            self.report(f"{pool}: its nodes go")
        for left in done.left:
            self.report(f"left: {left}")
        is_over = not done.left or done.is_final
        state = {
            "halted": is_over,
            "at": self.now().isoformat(),
            "pools": list(done.pools),
            "left": done.left,
        }
        self.kube.patch("ConfigMap", NAME, {"data": {RECORD: json.dumps(state)}}, namespace=self.namespace)
        return is_over


def halting(home: Path, environment: Mapping[str, str]) -> Callable[[ClusterSpec], Halt]:
    """Return what scales a cluster of any provider, as the guard's identity lets it."""

    def halt(cluster: ClusterSpec) -> Halt:
        provider = providers.load(cluster.provider, home=Home(root=home), environment=environment)
        return provider.halt(cluster)

    return halt


def main(arguments: Sequence[str]) -> int:
    """Make one round; 0 when all is done that is due."""
    if arguments:
        print(f"usage: python -m cloudrec.pod guard (it takes no {arguments[0]!r})")
        return 64
    with TemporaryDirectory(prefix="cloudrec-guard-") as folder:
        place = inside.place(os.environ, folder)
        environment = {**os.environ, "KUBECONFIG": str(place.kubeconfig)}
        with place.connect() as kube:
            guard = Guard(
                kube=kube, namespace=place.namespace, halt=halting(place.kubeconfig.parent, environment)
            )
            try:
                return 0 if guard.round() else 1
            except CloudrecError as error:
                print(f"error: {error.message}\n{error.remedy or ''}".rstrip(), flush=True)
                return 1
