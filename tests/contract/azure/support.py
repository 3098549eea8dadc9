"""Shared helpers of the Azure provider's tests, which run against the stand-in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.graph import Observed
from cloudrec.engine.plan import Action, Plan
from cloudrec.home import Home
from cloudrec.providers.azure.api import client
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec.spec.models import ClusterSpec
from tests.sandbox.azure.support import Azure

SPEED = 600.0  # of the stand-in's clock; a wait takes a tenth of a second
# Read-only actions.
_READS = re.compile(r"Get |Head |Post (.*/)?(list|check|getRequired)")


def fresh(azure: Azure, **control: Any) -> None:
    """Reset to an empty subscription with GPU quota, where operations take seconds."""
    azure.control(reset=True)
    azure.env["CLOUDREC_SANDBOX_SPEED"] = str(SPEED)
    azure.control(speed=SPEED, durations={"*": 5}, quotas=QUOTAS, **control)


# Core quota of GPU nodes: 0 in a new subscription.
QUOTAS = dict.fromkeys(
    (
        "cores",
        "lowPriorityCores",
        "standardDSv5Family",
        "Standard NCASv3_T4 Family",
        "Standard NDASv4_A100 Family",
    ),
    1000,
)


class Site:
    """One home, one subscription on the stand-in, and a requested cluster."""

    def __init__(self, azure: Azure, folder: Path, **cluster: Any) -> None:
        self.azure = azure
        self.home = Home(root=folder / "home")
        given: dict[str, Any] = {
            "name": "t",
            "provider": "azure",
            "owner": "tester",
            "nodes": 1,
            "access": "private",
            **cluster,
        }
        self.cluster = ClusterSpec.model_validate(given)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.home, environment=self.azure.env)

    @property
    def provider(self) -> AzureProvider:
        return AzureProvider(self.home, self.azure.env)

    @property
    def sdk(self) -> Any:
        """Azure's SDK clients, for changes from outside cloudrec."""
        return client.Azure(self.azure.env)

    def up(self) -> Plan:
        return app.up(self.application, self.cluster, decide=lambda _plan: True)

    def planned(self) -> dict[str, Action]:
        """The changes that `up` plans, by key."""
        plan = app.up(self.application, self.cluster, decide=lambda _plan: False)
        return {action.key: action for action in plan.changes}

    def down(self, *, keep_data: bool = False) -> None:
        app.down(
            self.application,
            provider_name="azure",
            cluster_name=self.cluster.title,
            keep_data=keep_data,
            decide=lambda _removal: True,
        )

    def found(self) -> dict[str, Observed]:
        """The resources that a search by tag finds, by key."""
        return {seen.key: seen for seen in self.provider.search(self.cluster.title)}

    def changes(self, since: int = 0) -> list[str]:
        """The changing calls that the stand-in received."""
        return [
            f"{call['service']}:{call['action']}"
            for call in self.azure.calls(since)
            if call["service"] != "entra" and not _READS.match(call["action"])
        ]
