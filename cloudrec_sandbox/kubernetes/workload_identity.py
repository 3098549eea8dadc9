"""Azure's webhook for workload identity: pods with a label get a token that Entra ID exchanges.

The label, the annotation, the variables and the volume are those of "Microsoft Entra Workload ID: labels and
annotations" (AKS) and of azure-workload-identity's documentation of its mutating admission webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Store

AUDIENCE = "api://AzureADTokenExchange"
_LABEL = "azure.workload.identity/use"
_CLIENT, _TENANT = "azure.workload.identity/client-id", "azure.workload.identity/tenant-id"
_VOLUME, _FILE = "azure-identity-token", "azure-identity-token"
_FOLDER = "/var/run/secrets/azure/tokens"
_SECONDS = 3600


def fill(store: Store, resource: Resource, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    """Add the token's volume and the variables to a new pod that asks for them."""
    azure = store.tokens.issuer.azure
    labels = new["metadata"].get("labels") or {}
    if azure is None or resource.key != "pods" or old is not None or labels.get(_LABEL) != "true":
        return
    spec = new["spec"]
    place = (new["metadata"]["namespace"], spec.get("serviceAccountName") or "default")
    account = store.table.get("serviceaccounts", place)
    notes = (account.obj["metadata"].get("annotations") or {}) if account else {}
    variables = {
        "AZURE_CLIENT_ID": notes.get(_CLIENT, ""),
        "AZURE_TENANT_ID": notes.get(_TENANT, azure["tenant"]),
        "AZURE_FEDERATED_TOKEN_FILE": f"{_FOLDER}/{_FILE}",
        "AZURE_AUTHORITY_HOST": azure["authority"],
    }
    if all(volume["name"] != _VOLUME for volume in spec.get("volumes") or ()):
        source = {"path": _FILE, "audience": AUDIENCE, "expirationSeconds": _SECONDS}
        volume = {
            "name": _VOLUME,
            "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": source}]},
        }
        spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        _give(container, variables)


def _give(container: dict[str, Any], variables: Mapping[str, str]) -> None:
    known = container.get("env") or []
    names = {each["name"] for each in known}
    more = [{"name": name, "value": value} for name, value in variables.items() if name not in names]
    container["env"] = [*known, *more]
    mounts = container.get("volumeMounts") or []
    if all(each["mountPath"] != _FOLDER for each in mounts):
        mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
        container["volumeMounts"] = [*mounts, mount]
