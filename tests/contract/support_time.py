"""Time that passes by order in linked stand-ins, and a guard whose rounds a test makes itself."""

from __future__ import annotations

import time
from typing import Any, Protocol

from cloudrec.keeper.ends import ENDING
from cloudrec.keeper.note import METER, NAME
from cloudrec.keeper.spot import SPOT_PRICES
from cloudrec.kubernetes.client.client import Kube
from tests.conformance.support_clouds import Cloud, until


class Controlled(Protocol):
    """A stand-in that takes settings."""

    def control(self, **wishes: Any) -> dict[str, Any]: ...


def same_time(*stand_ins: Controlled) -> float:
    """Let the clocks of stand-ins show the same time; return how far they are ahead of the real time, in s.

    Each ran faster until its speed was set, by a time that depends on the machine's load.
    """
    ahead = [each.control()["virtual_time"] - time.time() for each in stand_ins]
    for each, seconds in zip(stand_ins, ahead, strict=True):
        each.control(advance_s=max(ahead) - seconds)
    return max(ahead)


def take_over_guard(server: Cloud, kube: Kube, namespace: str) -> None:
    """End the guard's own pods, whose clock is real, and remove what they have written."""
    # A new cluster resets the server; from now on the guard's pods are only simulated.
    server.control(processes=False, bookkeeping={"run_s": 1, "exit_code": 0})
    for kind in ("batch/v1/CronJob", "batch/v1/Job"):
        for each in kube.list(kind, namespace=namespace):
            metadata = each["metadata"]
            kube.delete(kind, metadata["name"], namespace=namespace, uid=metadata["uid"])
    until(lambda: not kube.list("Pod", namespace=namespace), "the guard's pods are gone")
    nothing = {"data": dict.fromkeys((METER, SPOT_PRICES, ENDING))}
    kube.patch("ConfigMap", NAME, nothing, namespace=namespace)
