"""Kubernetes: an API server of this process's own, over HTTPS, and a cluster behind it.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` tells all of it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.server import KubernetesServer

__all__ = ["serve"]


def serve(port: int) -> KubernetesServer:
    """A server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extras it needs."""
    for module in ("cryptography", "kubernetes_validate"):
        if find_spec(module) is None:
            raise MissingExtraError("sandbox", module=module)
    from cloudrec.sandbox.kubernetes.server import serve as start  # noqa: PLC0415 - only where the extra is there

    return start(port)
