"""The API server as a pod sees it: by what every pod that has a token is given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONTEXT = "in-cluster"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a pod is.

    Attributes:
        kubeconfig: how it reaches the API server: its token stays where the kubelet renews it.
        namespace: the pod's.
    """

    kubeconfig: Path
    namespace: str

    def connect(self) -> Kube:
        """Return a client."""
        target = Target(
            kubeconfig=str(self.kubeconfig), context=_CONTEXT, namespace=self.namespace, service_account=""
        )
        return Kube.connect(target)


def place(environment: Mapping[str, str], folder: str, *, mount: Path = _MOUNT) -> Place:
    """Find out where this pod is.

    Args:
        environment: the pod's: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
        folder: where a kubeconfig may be written.
        mount: where the kubelet puts token, authority and namespace.

    Raises:
        PreflightError: this is no pod, or one without a token.
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    try:
        namespace = (mount / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise PreflightError(
            f"this is no pod with a token of the API server: {mount}: {error.strerror}",
            remedy="it runs in a cluster, as its CronJob has it",
        ) from error
    if not host:
        raise PreflightError("this is no pod: KUBERNETES_SERVICE_HOST is not set")
    address = f"[{host}]" if ":" in host else host
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": _CONTEXT,
                "cluster": {
                    "server": f"https://{address}:{port or 443}",
                    "certificate-authority": str(mount / "ca.crt"),
                },
            }
        ],
        "users": [{"name": _CONTEXT, "user": {"tokenFile": str(mount / "token")}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": _CONTEXT}}],
        "current-context": _CONTEXT,
    }
    path = Path(folder) / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    return Place(kubeconfig=path, namespace=namespace)
