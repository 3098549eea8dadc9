"""Services that no cluster needs, as far as lists of a project show their resources.

Cloud Filestore v1, Cloud TPU v2 and Secret Manager v1: create, list and delete, with the
required fields of their discovery documents. Filestore and TPU create by operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, operations, paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS, ZONES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"file-create": 180, "tpu-create": 120})


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One collection of a service.

    Attributes:
        service: the first word of the host.
        name: of the collection, in paths and answers.
        noun: of one resource, in messages.
        required: the fields that a creation must have.
        known: the fields that it may have.
        parameter: the query's parameter with the new resource's name.
        version: of the API.
        places: the locations; empty for global resources.
        seconds: the name of a creation's duration; empty if it has none.
    """

    service: str
    name: str
    noun: str
    required: tuple[str, ...]
    known: tuple[str, ...]
    parameter: str
    version: str = "v1"
    places: Mapping[str, object] | None = None
    seconds: str = ""

    @property
    def url(self) -> str:
        """Return the template of the list's URL."""
        where = "/locations/{location}" if self.places else ""
        return f"/{self.version}/projects/{{project}}{where}/{self.name}"

    def folder(self, call: Call) -> str:
        """Return the path of the call's parent, up to the collection."""
        where = f"/locations/{call.params['location']}" if self.places else ""
        return f"projects/{call.project}{where}/{self.name}"


KINDS = (
    Kind(
        service="file",
        name="instances",
        noun="instance",
        required=("tier", "fileShares", "networks"),
        known=("description", "kmsKeyName", "labels", "protocol"),
        parameter="instanceId",
        places={**ZONES, **REGIONS},
        seconds="file-create",
    ),
    Kind(
        service="tpu",
        name="nodes",
        noun="node",
        required=("acceleratorType", "runtimeVersion"),
        known=("description", "labels", "metadata", "networkConfig", "schedulingConfig", "serviceAccount"),
        parameter="nodeId",
        version="v2",
        places=ZONES,
        seconds="tpu-create",
    ),
    Kind(
        service="secretmanager",
        name="secrets",
        noun="secret",
        required=("replication",),
        known=("annotations", "expireTime", "labels", "topics", "ttl"),
        parameter="secretId",
    ),
)


def _named(kind: Kind, call: Call) -> str:
    """Return the path of the new resource."""
    name = call.query.get(kind.parameter, "")
    if not checks.is_name(name):
        raise _invalid(f"Invalid {kind.parameter}: '{name}'")
    return f"{kind.folder(call)}/{name}"


def _invalid(text: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", text)


def _check_place(kind: Kind, call: Call, *, may_be_all: bool = False) -> None:
    place = call.params.get("location", "")
    if kind.places and place not in kind.places and not (may_be_all and place == "-"):
        raise _invalid(f"Location '{place}' is not a valid location of {kind.service}.googleapis.com.")


def _creates(kind: Kind, method: str) -> None:
    permission = f"{kind.service}.{kind.name}.create"
    query = (kind.parameter,)

    @rest(kind.service, f"{method}.create", "POST", kind.url, body=dict, query=query, permission=permission)
    def create(call: Call) -> Any:  # noqa: ANN401 - an operation or the resource
        _check_place(kind, call)
        document = call.body
        if unknown := sorted(set(document) - {*kind.required, *kind.known}):
            raise _invalid(f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.')
        for name in kind.required:
            if not document.get(name):
                raise _invalid(f"{kind.noun}.{name} is required.")
        checks.labels(document.get("labels", {}), f"{kind.noun}.labels")
        path = _named(kind, call)
        if store.find(call.world, kind.service, path):
            raise GcpError("ALREADY_EXISTS", f"Resource '{path}' already exists")
        moment = as_datetime(call.world.now()).isoformat().replace("+00:00", "Z")
        document |= {"name": path, "createTime": moment, "state": "CREATING" if kind.seconds else "ENABLED"}
        store.add(call.world, kind.service, kind.name, path, document)
        if not kind.seconds:
            return dict(document)
        return operations.begin_long(
            call.world,
            path.partition(f"/{kind.name}/")[0],
            seconds=call.world.duration(kind.seconds),
            step=ready,
            arguments=(kind.service, path),
        )

    del create


def ready(world: World, service: str, path: str) -> Empty:
    """End a creation; the result's own message is not in this environment's packages."""
    store.need(world, service, path).document["state"] = "READY"
    return Empty()


def _lists(kind: Kind, method: str) -> None:
    permission = f"{kind.service}.{kind.name}.list"

    @rest(kind.service, f"{method}.list", "GET", kind.url, query=paging.QUERY, permission=permission)
    def list_(call: Call) -> dict[str, Any]:
        _check_place(kind, call, may_be_all=True)
        folder = kind.folder(call)
        if call.params.get("location") == "-":
            folder = f"projects/{call.project}/locations/"
        rows = store.listed(call.world, kind.service, folder, kind.name)
        items, token = paging.page([dict(row.document) for row in rows], call)
        return {kind.name: items, **({"nextPageToken": token} if token else {})}

    del list_


def _deletes(kind: Kind, method: str) -> None:
    permission = f"{kind.service}.{kind.name}.delete"

    @rest(kind.service, f"{method}.delete", "DELETE", kind.url + "/{name}", permission=permission)
    def delete(call: Call) -> dict[str, Any]:
        path = f"{kind.folder(call)}/{call.params['name']}"
        if store.find(call.world, kind.service, path) is None:
            raise GcpError("NOT_FOUND", f"Resource '{path}' was not found")
        store.remove(call.world, kind.service, path)
        return {}

    del delete


for _kind in KINDS:
    _method = f"projects.{'locations.' if _kind.places else ''}{_kind.name}"
    _creates(_kind, _method)
    _lists(_kind, _method)
    _deletes(_kind, _method)
