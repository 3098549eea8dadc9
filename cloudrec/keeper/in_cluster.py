"""Access to the API server from a pod, with the pod's service account token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONTEXT = "in-cluster"


@dataclass(frozen=True, kw_only=True)
class PodAccess:
    """A pod's access to its cluster.

    Attributes:
        kubeconfig: a kubeconfig that names the token's file, since the kubelet renews the token there.
        namespace: the pod's namespace.
    """

    kubeconfig: Path
    namespace: str

    def connect(self) -> Kube:
        """Return a client of the API server."""
        target = ClusterTarget(
            kubeconfig=str(self.kubeconfig), context=_CONTEXT, namespace=self.namespace, service_account=""
        )
        return Kube.connect(target)


def place(environment: Mapping[str, str], folder: str, *, mount: Path = _MOUNT) -> PodAccess:
    """Return this pod's access to its cluster.

    Args:
        environment: the pod's variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
        folder: the folder for the kubeconfig.
        mount: the folder with the token, the certificate authority and the namespace.

    Raises:
        PreflightError: this process is not in a pod, or the pod has no token.
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
    # An IPv6 address needs brackets in a URL.
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
    return PodAccess(kubeconfig=path, namespace=namespace)
