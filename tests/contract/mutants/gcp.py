"""Google Cloud: the node pool of each machine type, changed and sent as a message of gRPC.

The client makes a pool without nodes and then gives it some, so a changed pool counts as accepted only once
it has its nodes.
"""

from __future__ import annotations

import base64
import time
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud import container_v1
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from cloudrec.providers.gcp.offers import KNOWN
from tests.contract.gcp.support import fresh, whole
from tests.contract.mutants import documented
from tests.contract.mutants.changes import mutants
from tests.contract.mutants.models import ProtoModel
from tests.contract.mutants.sending import Answer, Result
from tests.contract.mutants.verdicts import judge, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.mutants.sending import Outcome
    from tests.sandbox.gcp.support import Gcp

_REQUEST, _RULES, _SAVED = "CreateNodePool", "gcp-pool", "mutants"
_SERVICE = "/google.container.v1.ClusterManager/"
_MODEL = ProtoModel(container_v1.CreateNodePoolRequest())
_DEFECTS = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_FAILURE: Any = vars(grpc)["RpcError"]  # the stubs of grpc lack it
_QUOTAS = {"global/GPUS_ALL_REGIONS": 10**6}


def machines() -> list[str]:
    """Return the machine types with a profile that the stand-in offers: it has no G4."""
    return [name for name, row in KNOWN.items() if row.profile and not name.startswith("g4-")]


class GcpRequests:
    """The request for one machine type, as the client sent it to the stand-in."""

    cloud = "gcp"

    def __init__(self, gcp: Gcp, folder: Path) -> None:
        self._gcp = gcp
        self._folder = folder
        self._numbers = count()

    def results(self, machine: str, *, every: int = 1) -> Iterator[Result]:
        """Yield each mutant (or each n-th) of the machine's request with its verdict and its answer."""
        pool = self._captured(machine)
        rules = table(_RULES)
        self._gcp.ask("POST", "/save", {"name": _SAVED})
        plain = self._answer(pool)
        assert plain.outcome == "accepted", plain
        found = mutants(pool, alternatives=rules.alternatives, is_typed=True, keep=rules.keep)
        for mutant in islice(found, None, None, every):
            verdict, caught = judge(
                mutant, machine=machine, rules=_RULES, model=_MODEL, whole=documented.gcp()
            )
            yield Result(
                cloud=self.cloud,
                machine=machine,
                request=_REQUEST,
                mutant=mutant,
                verdict=verdict,
                answer=self._answer(mutant.document, name_is_changed=mutant.field == "nodePool.name"),
                caught=caught,
            )

    def _captured(self, machine: str) -> dict[str, Any]:
        """Run `up` for a cluster with the machine; return its pool as it was sent."""
        fresh(self._gcp)
        self._gcp.control(requests=True, quotas=_QUOTAS)
        folder = self._folder / f"{next(self._numbers)}"
        # Some types are not for sale on demand; their networks are in some zones only.
        spec = {"capacity": "spot", "zones": ("us-central1-b",)} if KNOWN[machine].only else {}
        whole(self._gcp, folder, instance_types=[machine], nodes=2, **spec).up()
        kept = self._gcp.ask("GET", "/requests")
        self._gcp.control(requests=False)
        sent = next(
            each
            for each in kept
            if each["action"] == "CreateNodePool" and b"gpu-" in base64.b64decode(each["body"])
        )
        message = container_v1.CreateNodePoolRequest.deserialize(base64.b64decode(sent["body"]))
        raw = container_v1.CreateNodePoolRequest.pb(message)
        found: dict[str, Any] = _with_numbers(MessageToDict(raw, use_integers_for_enums=True))
        return found

    def _answer(self, document: dict[str, Any], *, name_is_changed: bool = False) -> Answer:
        message = container_v1.CreateNodePoolRequest.pb(container_v1.CreateNodePoolRequest())
        try:
            ParseDict(document, message)
        except ParseError as error:
            return Answer(outcome="refused", words=f"the SDK cannot write it: {error}")
        self._gcp.ask("POST", "/restore", {"name": _SAVED})
        if message.node_pool.name and not name_is_changed:
            message.node_pool.name = f"m{next(self._numbers)}"
        try:
            self._call("CreateNodePool", message, container_v1.Operation)
            path = f"{message.parent}/nodePools/{message.node_pool.name}"
            self._settled(path)
            size = container_v1.SetNodePoolSizeRequest(name=path, node_count=2)
            self._call(
                "SetNodePoolSize", container_v1.SetNodePoolSizeRequest.pb(size), container_v1.Operation
            )
            pool = self._settled(path)
        except _FAILURE as error:
            outcome: Outcome = "defect" if error.code() in _DEFECTS else "refused"
            return Answer(outcome=outcome, words=str(error.details()))
        if pool.status != container_v1.NodePool.Status.RUNNING:
            return Answer(outcome="refused", words=f"{pool.status.name}: {pool.conditions}")
        return Answer(outcome="accepted")

    def _settled(self, path: str) -> container_v1.NodePool:
        self._gcp.control(advance_s=1200)
        for _ in range(200):
            pool = self._gcp.gke.get_node_pool(name=path)
            if pool.status not in (
                container_v1.NodePool.Status.PROVISIONING,
                container_v1.NodePool.Status.RECONCILING,
            ):
                return pool
            time.sleep(0.02)
        return pool

    def _call(self, method: str, message: Any, answer: Any) -> Any:
        call = self._gcp.channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=answer.deserialize,
        )
        return call(message, timeout=60)


def _with_numbers(value: Any) -> Any:
    """Return JSON with 64-bit numbers as numbers, which protobuf writes as text."""
    if isinstance(value, dict):
        return {key: _with_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_numbers(each) for each in value]
    return int(value) if isinstance(value, str) and value.isdigit() else value
