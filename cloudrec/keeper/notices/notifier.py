"""The last part of a round: it looks at runs, sends notifications, and keeps what was sent.

It takes a bounded time, and no error of it reaches the round: the end and the nodes come first.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.keeper.managed.record import MANAGED, TAKEN_BACK, ManagedRecord
from cloudrec.keeper.note import ASKED, NAME, OUTBOX, VARIABLES
from cloudrec.keeper.notices.detect import ClusterSight, EndedRun, TakenNode, detect
from cloudrec.kubernetes.client.errors import AbsentError, ConflictError
from cloudrec.kubernetes.health.causes import is_disrupted, pod_cause
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, ROLE, RUN, TRAINER
from cloudrec.launchers import launchers
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.launchers.kubernetes.run_state import KubernetesSnapshot, judge
from cloudrec.notify.channels import channels_of
from cloudrec.notify.deliver import deliver
from cloudrec.notify.notice import TEST, Notification
from cloudrec.notify.outbox import Outbox
from cloudrec.spec.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.keeper.meter import LiveNode
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.kubernetes.turns import Turn
    from cloudrec.spec.models import NotifySpec

_WITHIN_S = 20.0  # of a round, whatever the servers do
_CLAIM_S = 90.0  # another process that takes over waits for so long before it tries what this one tries
_RUNS = f"{MANAGED_BY}={MANAGER},{RUN}"


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Sends what a round has seen.

    Attributes:
        kube: a client of the API server.
        namespace: the namespace of the runs and the guard.
        notify: who is notified.
        secrets: the values of its secrets, by their keys.
        report: receives a line for each delivery that ends.
        within_s: seconds for the deliveries of a round.
    """

    kube: Kube
    namespace: str
    notify: NotifySpec
    secrets: Mapping[str, str]
    report: Callable[[str], None]
    within_s: float = _WITHIN_S

    def send(self, sight: ClusterSight, nodes: Sequence[LiveNode]) -> Outbox | None:
        """Look at the runs, and send what is new or due; return the outbox, None if another process sends."""
        found = self.kube.get("ConfigMap", NAME, namespace=self.namespace) or {}
        data = found.get("data") or {}
        pods = self.kube.list("Pod", namespace=self.namespace, labels=f"{_RUNS},{ROLE}={TRAINER}")
        record = ManagedRecord.of(data.get(MANAGED, ""))
        sight = replace(
            sight,
            ends=self._ends(pods),
            taken=[*_taken_pods(pods), *_taken_pools(record)],
            pools=_pools(nodes),
            received=_received(record, sight.cluster),
            near_s=seconds_of(self.notify.end_near),
        )
        channels, problems = channels_of(self.notify, self.secrets)
        before = Outbox.of(data.get(OUTBOX, ""))
        outbox, notices = detect(before, sight)
        wanted = [each for each in notices if each.event in self.notify.events]
        wanted += _test(data.get(ASKED, ""), sight)
        outbox = outbox.knowing(each.key for each in notices if each not in wanted)
        outbox = outbox.adding(wanted, [channel.name for channel in channels])
        outbox = replace(outbox, problems=tuple(problems))
        if not self._keep(found, before, outbox, sight.now):
            return None
        after = deliver(outbox, channels, now=sight.now, within_s=self.within_s)
        if after != outbox:
            change = {"data": {OUTBOX: after.to_json()}}
            self.kube.patch("ConfigMap", NAME, change, namespace=self.namespace)
            self._say(outbox, after)
        return after

    def _ends(self, pods: Sequence[Mapping[str, Any]]) -> list[EndedRun]:
        found = []
        for launcher in launchers().values():
            if not isinstance(launcher, KubeLauncher):
                continue
            engine = launcher.engine
            try:
                jobs = self.kube.list(engine.kind, namespace=self.namespace, labels=_RUNS)
            except (AbsentError, UsageError):  # the kind of an operator that is not installed
                continue
            for job in jobs:
                state = engine.phase(job).state
                if state not in ("succeeded", "failed"):
                    continue
                name = job["metadata"]["name"]
                own = [pod for pod in pods if pod["metadata"]["labels"].get(RUN) == name]
                status = judge(KubernetesSnapshot(engine=engine, job=job, pods=own, nodes=1, min_nodes=1))
                found.append(
                    EndedRun(
                        run=name,
                        uid=job["metadata"]["uid"],
                        has_failed=state == "failed",
                        cause=status.cause or "",
                    )
                )
        return found

    def _keep(self, found: Mapping[str, Any], before: Outbox | None, outbox: Outbox, now: float) -> bool:
        """Write the outbox before anything is sent, with a claim on what is due; False if another did."""
        claimed = replace(
            outbox,
            waiting=tuple(
                replace(each, due=now + _CLAIM_S) if each.due <= now else each for each in outbox.waiting
            ),
        )
        if claimed == before:
            return True
        change = {
            # The resource version makes the server refuse the change if another process was faster.
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "data": {OUTBOX: claimed.to_json()},
        }
        try:
            self.kube.patch("ConfigMap", NAME, change, namespace=self.namespace)
        except (AbsentError, ConflictError):
            return False
        return True

    def _say(self, before: Outbox, after: Outbox) -> None:
        for done in (each for each in after.done if each not in before.done):
            about = f"{done.event} of {done.run}" if done.run else done.event
            self.report(f"{done.channel}: {about}: {f'given up: {done.why}' if done.why else 'sent'}")
        for waiting in after.waiting:
            if waiting.why:
                self.report(f"{waiting.channel}: {waiting.notice.event}: not sent yet: {waiting.why}")


def secrets_from(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the secrets in the keeper's variables, which its CronJob takes from Secrets."""
    return {key: environment[name] for key, name in VARIABLES.items() if environment.get(name)}


def _test(asked: str, sight: ClusterSight) -> list[Notification]:
    """Return the test that `cloudrec notify test` has requested."""
    if not asked:
        return []
    text = f"This is a test. Cluster {sight.cluster} can reach you."
    return [Notification(key=f"test:{asked}", event=TEST, at=sight.now, text=text, cluster=sight.cluster)]


def _taken_pods(pods: Sequence[Mapping[str, Any]]) -> list[TakenNode]:
    found = []
    for pod in pods:
        if is_disrupted(pod):
            cause = pod_cause(pod)
            labels = pod["metadata"]["labels"]
            text = cause.text if cause is not None else "a node was taken"
            found.append(TakenNode(run=labels[RUN], key=pod["metadata"]["uid"], text=text))
    return found


def _taken_pools(record: ManagedRecord) -> list[TakenNode]:
    return [
        TakenNode(run=each.run, key=f"{each.run}@{each.at:.0f}", text=each.text)
        for each in record.events
        if each.run and each.text.endswith(TAKEN_BACK)
    ]


def _received(record: ManagedRecord, cluster: str) -> dict[str, Turn]:
    """Return the runs that another cluster has handed over; the first turn of a run has no reason."""
    return {
        run: turn
        for run, turn in record.turns.items()
        if turn.is_taken and turn.cluster == cluster and turn.reason and not turn.ended
    }


def _pools(nodes: Sequence[LiveNode]) -> dict[str, str]:
    """Return the pool of each run; none of a run whose pods are on several, as while it moves."""
    by_run: dict[str, Counter[str]] = {}
    for node in nodes:
        if node.run and node.pool:
            by_run.setdefault(node.run, Counter())[node.pool] += 1
    return {run: next(iter(pools)) for run, pools in by_run.items() if len(pools) == 1}
