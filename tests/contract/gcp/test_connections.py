"""The connections that the clients of one command open."""

from __future__ import annotations

from urllib.parse import urlsplit

import psutil

from cloudrec.providers.gcp.api import sdk
from cloudrec.providers.gcp.api.client import Gcp
from tests.contract.gcp.support import fresh
from tests.sandbox.gcp.support import Gcp as Cloud


def connections(cloud: Cloud) -> int:
    port = urlsplit(cloud.env["GOOGLE_CLOUD_ENDPOINT_URL"]).port
    found = psutil.Process().net_connections(kind="tcp")
    return sum(
        bool(each.raddr) and each.raddr.port == port and each.status == "ESTABLISHED" for each in found
    )


def test_clients_of_several_services_share_a_connection(cloud: Cloud) -> None:
    fresh(cloud)
    before = connections(cloud)
    gcp = Gcp(cloud.env, "us-central1")
    assert gcp.zones
    gcp.account  # noqa: B018 - read for its call
    gcp.skus()
    gcp.rows(gcp.rest(sdk.compute.NetworksClient).list, sdk.compute.ListNetworksRequest(project=gcp.project))
    list(gcp.storage.list_buckets())
    gcp.send("iam", "GET", f"/v1/projects/{gcp.project}/serviceAccounts")
    assert connections(cloud) - before == 2  # the other one is for the token
