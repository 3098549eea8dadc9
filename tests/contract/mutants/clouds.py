"""The clouds whose requests are mutated, and the machine types of each."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.contract.mutants import aws, azure, gcp
from tests.sandbox.aws.support import stand_in as aws_stand_in
from tests.sandbox.azure.support import stand_in as azure_stand_in
from tests.sandbox.gcp.support import stand_in as gcp_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.mutants.sending import Requests

NAMES = ("aws", "azure", "gcp")
_MACHINES = {"aws": aws.machines, "azure": azure.machines, "gcp": gcp.machines}


def machines(cloud: str) -> list[str]:
    """Return the cloud's machine types with a profile that its stand-in offers."""
    return _MACHINES[cloud]()


def shapes(cloud: str) -> list[str]:
    """Return one machine type of each shape: the others differ in their name and their size alone."""
    known = importlib.import_module(f"cloudrec.providers.{cloud}.offers").KNOWN
    found: dict[tuple[object, ...], str] = {}
    for name in machines(cloud):
        row = known[name]
        found.setdefault((row.profile, row.cards, row.nvme_gb > 0), name)
    return list(found.values())


@contextmanager
def requests(cloud: str, folder: Path) -> Iterator[Requests]:
    """Run a stand-in; yield what captures and sends the requests for its machines."""
    if cloud == "aws":
        with aws_stand_in() as stand_in:
            yield aws.AwsRequests(stand_in, folder)
    elif cloud == "azure":
        with azure_stand_in() as stand_in:
            yield azure.AzureRequests(stand_in, folder)
    else:
        with gcp_stand_in() as stand_in:
            yield gcp.GcpRequests(stand_in, folder)
