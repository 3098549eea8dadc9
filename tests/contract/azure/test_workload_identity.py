"""Pods reach the container as their identity, and a cloud token opens a cluster by its role alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import ClientAssertionCredential
from azure.storage.blob import BlobServiceClient

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Cloud, Site, stand_in, until

AUDIENCE = "api://AzureADTokenExchange"
_CLUSTER_ADMIN = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"


class Linked:
    """A cluster of the stand-in whose API the Kubernetes stand-in serves."""

    def __init__(self, cloud: Cloud, server: Cloud, site: Site, kube: Kube, access: KubernetesAccess) -> None:
        self.cloud = cloud
        self.server = server
        self.site = site
        self.kube = kube
        self.access = access
        notes = access.target.service_account_annotations
        self.client = notes["azure.workload.identity/client-id"]

    def token(self, account: str, audience: str = AUDIENCE) -> str:
        """A token of a service account, as the kubelet projects it."""
        path = f"/api/v1/namespaces/cloudrec/serviceaccounts/{account}/token"
        answer: Any = self.kube.raw("POST", path, body={"spec": {"audiences": [audience]}})
        return str(answer["status"]["token"])

    def properties(self, token: str) -> Any:
        """The container's properties, by an identity's token that is exchanged for this one."""
        credential = ClientAssertionCredential(
            self.cloud.env["AZURE_TENANT_ID"],
            self.client,
            lambda: token,
            authority=self.cloud.env["AZURE_AUTHORITY_HOST"],
            disable_instance_discovery=True,
            connection_verify=self.cloud.env["AZURE_CA_BUNDLE"],
        )
        account = self.access.storage.partition("@")[2].partition(".")[0]
        service = BlobServiceClient(
            f"{self.cloud.env['AZURE_BLOB_STORAGE_URL']}/{account}",
            credential=credential,
            connection_verify=self.cloud.env["AZURE_CA_BUNDLE"],
            retry_total=0,
        )
        return service.get_container_client("data").get_container_properties()


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    folder: Path = tmp_path_factory.mktemp("linked")
    with pytest.MonkeyPatch.context() as patch, stand_in("kubernetes") as server, stand_in("azure") as cloud:
        patch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            patch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, folder)
        site.up()
        access = site.application.provider("azure").access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        with Kube.connect(access.target) as kube:
            until(lambda: bool(kube.list("Node")), "nodes")
            kube.raw("POST", "/api/v1/namespaces", body={"metadata": {"name": "cloudrec"}})
            accounts = "/api/v1/namespaces/cloudrec/serviceaccounts"
            notes = dict(access.target.service_account_annotations)
            kube.raw("POST", accounts, body={"metadata": {"name": "cloudrec", "annotations": notes}})
            kube.raw("POST", accounts, body={"metadata": {"name": "other"}})
            yield Linked(cloud, server, site, kube, access)


def refusal(linked: Linked, token: str) -> str:
    """Entra ID's words about a token that it does not exchange."""
    with pytest.raises(ClientAuthenticationError) as caught:
        linked.properties(token)
    return str(caught.value)


def test_a_runs_service_account_reaches_the_container(linked: Linked) -> None:
    assert linked.properties(linked.token("cloudrec")).name == "data"


def test_entra_id_exchanges_no_other_token(linked: Linked) -> None:
    assert "AADSTS700213" in refusal(linked, linked.token("other"))
    assert "AADSTS700212" in refusal(linked, linked.token("cloudrec", "api://elsewhere"))
    head, claims, _ = linked.token("cloudrec").split(".")
    assert "AADSTS700027" in refusal(linked, f"{head}.{claims}.forged")
    assert "AADSTS50027" in refusal(linked, "no token")


def test_a_token_for_entra_id_does_not_open_the_api(linked: Linked) -> None:
    review = {"spec": {"token": linked.token("cloudrec")}}
    found: Any = linked.kube.raw("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=review)
    assert found["status"] == {"authenticated": False}


def test_network_rules_admit_the_clusters_subnet(linked: Linked) -> None:
    token = linked.token("cloudrec")
    linked.cloud.control(address="198.51.100.9")  # of no rule; pods come from the subnet
    try:
        assert linked.properties(token).name == "data"
        until(lambda: not any(row["reachable"] for row in linked.server.settings()["tokens"]), "it moved")
    finally:
        linked.cloud.control(address="203.0.113.7")
        # The API server does not answer this machine until it knows of the change.
        until(lambda: all(row["reachable"] for row in linked.server.settings()["tokens"]), "the API answers")


def test_pods_with_the_label_get_the_token_and_the_variables(linked: Linked) -> None:
    labels = {"azure.workload.identity/use": "true"}
    container = {"name": "one", "image": "registry.example/one"}
    spec = {"serviceAccountName": "cloudrec", "containers": [container]}
    metadata = {"name": "a", "labels": labels}
    made: Any = pod(linked, {"metadata": metadata, "spec": spec})
    variables = {each["name"]: each["value"] for each in made["spec"]["containers"][0]["env"]}
    assert variables["AZURE_CLIENT_ID"] == linked.client
    assert variables["AZURE_AUTHORITY_HOST"].startswith(linked.cloud.env["AZURE_AUTHORITY_HOST"])
    (volume,) = [each for each in made["spec"]["volumes"] if each["name"] == "azure-identity-token"]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == AUDIENCE
    without: Any = pod(linked, {"metadata": {"name": "a"}, "spec": spec})
    assert "env" not in without["spec"]["containers"][0]


def pod(linked: Linked, body: dict[str, Any]) -> Any:
    """What the API server would store, without a pod that runs."""
    path = "/api/v1/namespaces/cloudrec/pods"
    return linked.kube.raw("POST", path, query={"dryRun": "All"}, body=body)


def test_without_the_role_the_owners_token_may_nothing_in_the_cluster(linked: Linked) -> None:
    provider = linked.site.application.provider("azure")
    assert isinstance(provider, AzureProvider)
    client = provider.reach(None).authorization.role_assignments
    scope = f"/subscriptions/{linked.cloud.env['AZURE_SUBSCRIPTION_ID']}"
    (row,) = [row for row in client.list_for_subscription() if _CLUSTER_ADMIN in str(row.role_definition_id)]
    assert str(row.scope).startswith(scope)
    client.delete_by_id(str(row.id))
    until(lambda: not _may_list(linked.kube), "the role is gone")


def _may_list(kube: Kube) -> bool:
    try:
        kube.list("Node")
    except DeniedError:
        return False
    return True
