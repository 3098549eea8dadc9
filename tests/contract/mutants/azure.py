"""Azure: the agent pool of each machine type, changed and sent by the SDK's own pipeline."""

from __future__ import annotations

import base64
import json
import time
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from azure.core.rest import HttpRequest

from cloudrec.errors import SpecError
from cloudrec.providers.azure.api.client import Azure as Client
from cloudrec.providers.azure.offers import KNOWN
from tests.contract.azure.support import Site, fresh
from tests.contract.mutants.changes import UNKNOWN, mutants
from tests.contract.mutants.models import AzureModel
from tests.contract.mutants.sending import Answer, Result
from tests.contract.mutants.verdicts import judge, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.mutants.sending import Outcome
    from tests.sandbox.azure.support import Azure

_REQUEST, _RULES, _SAVED = "agentPools", "azure-pool", "mutants"
_MODEL = AzureModel("azure.mgmt.containerservice.models", "AgentPool")
_FIRST_REFUSAL, _FIRST_DEFECT = 400, 500
_QUOTA = 10**6
_REGIONS = ("eastus", "eastus2", "westus3", "southcentralus", "swedencentral")


def machines() -> list[str]:
    """Return the machine types with a profile."""
    return [name for name, row in KNOWN.items() if row.profile]


class AzureRequests:
    """The request for one machine type, as the client sent it to the stand-in."""

    cloud = "azure"

    def __init__(self, azure: Azure, folder: Path) -> None:
        self._azure = azure
        self._folder = folder
        self._numbers = count()
        self._target = ""

    def results(self, machine: str, *, every: int = 1) -> Iterator[Result]:
        """Yield each mutant (or each n-th) of the machine's request with its verdict and its answer."""
        pool = self._captured(machine)
        rules = table(_RULES)
        self._azure.ask("POST", "/save", {"name": _SAVED})
        plain = self._answer(pool)
        assert plain.outcome == "accepted", plain
        others = {**rules.alternatives, **self._others(pool)}
        found = mutants(pool, alternatives=others, keep=rules.keep)
        for mutant in islice(found, None, None, every):
            verdict, caught = judge(mutant, machine=machine, rules=_RULES, model=_MODEL)
            yield Result(
                cloud=self.cloud,
                machine=machine,
                request=_REQUEST,
                mutant=mutant,
                verdict=verdict,
                answer=self._answer(mutant.document),
                caught=caught,
            )

    def _captured(self, machine: str) -> dict[str, Any]:
        """Run `up` for a cluster with the machine; return its pool as it was sent."""
        fresh(self._azure)
        family = KNOWN[machine].family
        quotas = dict.fromkeys((family, "cores", "lowPriorityCores", "standardDSv5Family"), _QUOTA)
        self._azure.control(quotas=quotas, requests=True)
        for region in _REGIONS:
            folder = self._folder / f"{next(self._numbers)}"
            try:
                Site(self._azure, folder, instance_types=[machine], nodes=2, region=region).up()
            except SpecError:  # the region has no such size
                continue
            break
        kept = self._azure.ask("GET", "/requests")
        self._azure.control(requests=False)
        sent = next(each for each in kept if each["method"] == "PUT" and "/agentPools/gpu" in each["target"])
        self._target = sent["target"]
        self._client = Client(self._azure.env)
        pool: dict[str, Any] = json.loads(base64.b64decode(sent["body"]))
        return pool

    def _others(self, pool: dict[str, Any]) -> dict[str, list[object]]:
        """Return the id of a subnet that does not exist, in the pool's network."""
        subnet = str(pool["properties"]["vnetSubnetID"])
        return {r"properties\.vnetSubnetID": [f"{subnet}-{UNKNOWN}"]}

    def _answer(self, pool: dict[str, Any]) -> Answer:
        path, _, query = self._target.partition("?")
        target = f"{path.rpartition('/')[0]}/m{next(self._numbers)}?{query}"
        self._azure.ask("POST", "/restore", {"name": _SAVED})
        reply = self._client.resources.send_request(HttpRequest("PUT", target, json=pool))
        if reply.status_code >= _FIRST_REFUSAL:
            outcome: Outcome = "refused" if reply.status_code < _FIRST_DEFECT else "defect"
            return Answer(outcome=outcome, words=reply.text())
        self._azure.control(advance_s=600)
        for _ in range(100):
            row = self._client.resources.send_request(HttpRequest("GET", target)).json()
            state = row["properties"]["provisioningState"]
            if state in {"Succeeded", "Failed", "Canceled"}:
                break
            time.sleep(0.05)
        return (
            Answer(outcome="accepted") if state == "Succeeded" else Answer(outcome="refused", words=f"{row}")
        )
