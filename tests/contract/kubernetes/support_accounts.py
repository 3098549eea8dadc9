"""Clients of a service account: what its token may do, a pod with this token may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from cloudrec.kubernetes.client.client import Kube
from tests.contract.kubernetes.support import Server


def config_of(server: Server, kube: Kube, account: str, namespace: str) -> str:
    """The text of a kubeconfig with a token of a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = kube.raw("POST", path, what="ask for a token", body=request)["status"]["token"]
    document = yaml.safe_load(Path(server.kubeconfig).read_text(encoding="utf-8"))
    context = server.context or document["current-context"]
    (entry,) = (each["context"] for each in document["contexts"] if each["name"] == context)
    document["users"] = [{"name": entry["user"], "user": {"token": token}}]
    return str(yaml.safe_dump(document))


@contextmanager
def client_of(server: Server, kube: Kube, account: str, namespace: str) -> Iterator[Kube]:
    """A client with a token of a service account."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(config_of(server, kube, account, namespace), encoding="utf-8")
        with server.connect(kubeconfig=str(file)) as client:
            yield client
