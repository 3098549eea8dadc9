"""Google's own messages and methods, without the clients that the SDK's packages load with them.

Loading every client of Compute takes seconds. A package of which only the messages are needed gets an empty
module instead of its `__init__`; its submodules are then imported as usual. Nothing in the SDK changes.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import google.cloud
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = (
    "artifactregistry_v1",
    "billing_v1",
    "cloudquotas_v1",
    "compute_v1",
    "container_v1",
    "container_v1.services.cluster_manager",
    "container_v1.services.cluster_manager.transports",
    "iam_admin_v1",
    "lustre_v1",
    "lustre_v1.services.lustre",
    "lustre_v1.services.lustre.transports",
    "resourcemanager_v3",
    "service_usage_v1",
)


def prepare() -> None:
    """Let the messages be imported alone, in this process; what has been imported already stays."""
    for package in _PACKAGES:
        name = f"google.cloud.{package}"
        if name not in sys.modules:
            module = ModuleType(name)
            folder = package.replace(".", "/")
            module.__path__ = [f"{path}/{folder}" for path in google.cloud.__path__]
            sys.modules[name] = module


class Method(NamedTuple):
    """One gRPC method, with the parser of its requests."""

    path: str
    read: Callable[[bytes], Any]


def methods(transport: Any) -> dict[str, Method]:  # noqa: ANN401 - a class that the SDK generated
    """Return all methods of a client's gRPC transport, by path: /google.container.v1.X/CreateCluster."""
    recorder = _Recorder()
    instance = transport.__new__(transport)
    vars(instance).update(
        _stubs={}, _operations_client=None, _logged_channel=recorder, _grpc_channel=recorder
    )
    for name, _ in inspect.getmembers(transport, lambda member: isinstance(member, property)):
        if name not in ("grpc_channel", "kind", "host", "operations_client"):
            getattr(instance, name)
    return recorder.methods


class _Recorder:
    """Replaces a channel: records what the transport's stubs are made from."""

    def __init__(self) -> None:
        self.methods: dict[str, Method] = {}

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any) -> None:  # noqa: ANN401
        """Record one method."""
        del response_deserializer  # a reply is a message, which has its own type
        plus = getattr(request_serializer, "__self__", None)
        self.methods[path] = Method(path, plus.deserialize if plus else _request(path).FromString)


def _request(path: str) -> Any:  # noqa: ANN401 - a class of protobuf
    """Return the class of a method's requests, for requests that are plain protobuf messages."""
    service, _, method = path.removeprefix("/").partition("/")
    described = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return GetMessageClass(described.input_type)
