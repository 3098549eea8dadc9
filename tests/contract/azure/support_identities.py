"""The identities that a cluster has on Azure, as callers of ARM and of Blob Storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from cloudrec_sandbox.azure import services
from cloudrec_sandbox.azure.arm import registry
from tests.contract.azure.planted import Gardener
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import CLIENT, GROUP, Deployer
from tests.sandbox.azure.support import Azure

registry.load(services)  # the resource types, whose API versions `version` returns
SUFFIXES = ("cluster", "kubelet", "pod", "guard", "end")
_ARM, _STORAGE = "https://management.azure.com/.default", "https://storage.azure.com/.default"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A request that an identity tries.

    Attributes:
        action: what it needs, as resource-provider-operations.md of azure-docs (permissions/*.md) names it.
        method: of HTTP.
        path: of the resource or of the operation.
        body: the document.
    """

    action: str
    method: str
    path: str
    body: Any = field(default_factory=dict)


class Identity:
    """One identity: what it gets from ARM and from Blob Storage."""

    def __init__(self, azure: Azure, client: str, secret: str) -> None:
        self.azure = azure
        credential = azure.credential(client_id=client, client_secret=secret)
        self._tokens = {scope: credential.get_token(scope).token for scope in (_ARM, _STORAGE)}

    def may(self, attempt: Attempt) -> bool:
        """Whether permissions do not refuse a request."""
        sign = "&" if "?" in attempt.path else "?"
        path = f"{attempt.path}{sign}api-version={version(attempt.path)}"
        headers = {"Authorization": f"Bearer {self._tokens[_ARM]}"}
        body = None if attempt.method in ("GET", "DELETE") else attempt.body
        status, _, document = self.azure.raw(attempt.method, path, body, **headers)
        assert status not in (401, 429), document
        assert "api-version" not in str((document or {}).get("error")), document
        return not is_denied(status, document)

    def blob(self, method: str, account: str, place: str) -> tuple[int, str]:
        """The status of a request to Blob Storage, and the code of its error."""
        headers = {"Authorization": f"Bearer {self._tokens[_STORAGE]}", "x-ms-version": "2023-11-03",
                   "x-ms-blob-type": "BlockBlob"}  # fmt: skip
        connection = self.azure.connection()
        data = b"x" if method == "PUT" else None
        connection.request(method, f"/blob/{account}/{place}", data, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("x-ms-error-code", "")


def is_denied(status: int, document: Any) -> bool:
    """Whether ARM refused for want of permissions."""
    code = ((document or {}).get("error") or {}).get("code", "")
    return status == 403 and code in ("AuthorizationFailed", "LinkedAuthorizationFailed")


def version(path: str) -> str:
    """An API version that the stand-in accepts for a path."""
    parts = path.partition("?")[0].rpartition("/providers/")[2].split("/")
    kind = registry.kinds.get("/".join([parts[0], *parts[1::2]]).lower())
    known = {"roleassignments": "2022-04-01", "roledefinitions": "2022-04-01"}
    if len(parts) > 1 and parts[1].lower() in known:
        return known[parts[1].lower()]
    return kind.apis[-1] if kind is not None and kind.apis else "2021-04-01"


class Estate:
    """A deployer's cluster in a subscription where another team has one, and many other things."""

    def __init__(self, azure: Azure, deployer: Deployer, theirs: Site) -> None:
        self.azure = azure
        self.deployer = deployer
        self.subscription = deployer.subscription
        azure.control(enforce_iam=False, rates={"*": [1e9, 1e9]})
        theirs.up()
        Gardener(theirs).plant()
        azure.control(enforce_iam=True)
        deployer.site = Site(azure, deployer.site.home.root.parent, budget_usd=100.0, access="auto")
        deployer.act("up")
        azure.advance(3600)
        azure.control(enforce_iam=False)
        self.accounts = {
            row.id.split("/")[4].lower(): row.name
            for row in azure.client("storage").storage_accounts.list()
            if row.name.startswith("cr")
        }
        azure.control(enforce_iam=True)
        self.principals: dict[str, str] = {}
        self.identities = dict(self._identities())

    def _identities(self) -> Iterator[tuple[str, Identity]]:
        clients = {CLIENT: {"secret": "deployer", "object_id": _object(CLIENT)}}
        self.azure.control(enforce_iam=False)
        calls = self.azure.client("msi").user_assigned_identities
        for suffix in SUFFIXES:
            found = calls.get(GROUP, f"{GROUP}-{suffix}")
            self.principals[suffix] = found.principal_id
            clients[found.client_id] = {"secret": suffix, "object_id": found.principal_id}
        self.azure.control(enforce_iam=True, clients=clients)
        for client, each in clients.items():
            yield each["secret"], Identity(self.azure, client, each["secret"])

    def bystanders(self) -> list[str]:
        """The ids of everything that is not in the deployer's groups."""
        own = (f"/resourcegroups/{GROUP}/", f"/resourcegroups/{GROUP}-nodes/")
        found = (f"/{entry.partition(':/')[2]}" for entry in self.azure.state())
        return [id_ for id_ in found if "/" in id_[1:] and not any(part in f"{id_.lower()}/" for part in own)]

    def id(self, of_type: str, *names: str, group: str = "cloudrec-u") -> str:
        """The id of a resource, of the other team if no group is given."""
        return self.azure.id(of_type, *names, group=group)


def _object(client: str) -> str:
    assert client == CLIENT
    return str(uuid5(NAMESPACE_DNS, "deployer.object"))
