"""Short cuts for tests of Compute's stand-in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import compute_v1

from tests.sandbox.gcp.support import PROJECT, REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sandbox.gcp.support import Gcp

SOON = 120.0  # virtual seconds in which everything of Compute's is done


@contextmanager
def turned_down(status: int, reason: str, *words: str) -> Iterator[None]:
    """The block is refused with this status, and in the older APIs' way with this reason and these words."""
    with pytest.raises(GoogleAPICallError) as caught:
        yield
    error = caught.value
    assert (error.code, error.errors[0]["reason"]) == (status, reason), error
    for word in words:
        assert word in error.message, error.message


class Compute:
    """Networks and what is in them, made and waited for; an operation's errors are what waiting returns."""

    def __init__(self, gcp: Gcp) -> None:
        self.gcp = gcp
        self.networks, self.subnets = gcp.compute("Networks"), gcp.compute("Subnetworks")
        self.routers, self.firewalls = gcp.compute("Routers"), gcp.compute("Firewalls")

    def done(self, begun: Any) -> list[tuple[str, str]]:
        """Let time pass until an operation is done; the errors that it ended with."""
        self.gcp.advance(SOON)
        if begun.region:
            found = self.gcp.compute("RegionOperations").get(
                project=PROJECT, region=begun.region.rpartition("/")[2], operation=begun.name
            )
        elif begun.zone:
            found = self.gcp.compute("ZoneOperations").get(
                project=PROJECT, zone=begun.zone.rpartition("/")[2], operation=begun.name
            )
        else:
            found = self.gcp.compute("GlobalOperations").get(project=PROJECT, operation=begun.name)
        assert found.status == compute_v1.Operation.Status.DONE
        return [(each.code, each.message) for each in found.error.errors]

    def insert_network(self, name: str = "net", **more: Any) -> Any:
        body = {"name": name, "auto_create_subnetworks": False, **more}
        return self.networks.insert_unary(project=PROJECT, network_resource=body)

    def network(self, name: str = "net") -> str:
        """A network that is there; its link."""
        assert self.done(self.insert_network(name)) == []
        return str(self.networks.get(project=PROJECT, network=name).self_link)

    def insert_subnet(self, name: str = "sub", cidr: str = "10.0.0.0/20", **more: Any) -> Any:
        body = {"name": name, "network": "global/networks/net", "ip_cidr_range": cidr, **more}
        return self.subnets.insert_unary(project=PROJECT, region=REGION, subnetwork_resource=body)

    def subnet(self, name: str = "sub", cidr: str = "10.0.0.0/20", **more: Any) -> str:
        """A subnet that is there; its link."""
        assert self.done(self.insert_subnet(name, cidr, **more)) == []
        return str(self.subnets.get(project=PROJECT, region=REGION, subnetwork=name).self_link)

    def insert_router(self, name: str = "out", **more: Any) -> Any:
        body = {"name": name, "network": "global/networks/net", **more}
        return self.routers.insert_unary(project=PROJECT, region=REGION, router_resource=body)

    def nats(self, name: str = "out") -> list[str]:
        """The names of a router's NATs."""
        found = self.routers.get(project=PROJECT, region=REGION, router=name).nats
        return [each.name for each in found]

    def insert_firewall(self, name: str = "inside", **more: Any) -> Any:
        allowed = [{"I_p_protocol": "tcp", "ports": ["22"]}]
        body = {"name": name, "network": "global/networks/net", "allowed": allowed, **more}
        return self.firewalls.insert_unary(project=PROJECT, firewall_resource=body)


def nat(name: str = "nat", **more: Any) -> dict[str, Any]:
    """A NAT for all subnets."""
    return {
        "name": name,
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
        **more,
    }
