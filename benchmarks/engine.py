"""The overhead of the resource engine: `up`, a second `up`, and `down`, on a cloud without delays.

The cloud is a dictionary, so only the engine, its threads and its journal are measured. The graph has the
shape of a large deployment: layers in which each resource needs some resources of the layer before. The time
should be linear in the number of resources, 2,000 may take at most 2 s, and the memory at most 150 MB.
"""

from __future__ import annotations

import resource as rusage
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine
from cloudrec.engine.apply import apply
from cloudrec.engine.context import Context
from cloudrec.engine.cost import FREE
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    Condition,
    Difference,
    ErrorVerdict,
    Graph,
    Observed,
    Resource,
)
from cloudrec.engine.journal import Journal
from cloudrec.engine.plan import merge, plan
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES = (500, 1000, 2000, 4000, 10_000)
LAYERS = 10
LIMIT_S, LIMIT_SIZE = 2.0, 2000
LIMIT_MB = 150.0


@dataclass
class Instant:
    """A cloud that answers immediately."""

    resources: dict[str, Observed] = field(default_factory=dict)
    deadline_s: float = 60.0
    poll_s: float = 1.0

    def find(self, resource: Resource) -> Observed | None:
        """Return the resource, if it exists."""
        return self.resources.get(resource.name)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Return no difference."""
        del resource, observed
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the resource."""
        del token, identities
        self.resources[resource.name] = Observed(
            kind=resource.kind,
            name=resource.name,
            identity=resource.name,
            condition=Condition.READY,
            tags=resource.tags,
            hourly_usd=FREE,
        )
        return resource.name

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Fail: no resource ever differs."""
        raise NotImplementedError

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return READY for every existing resource."""
        del kind
        return (Condition.READY if identity in self.resources else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Delete the resource."""
        self.resources.pop(observed.identity, None)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Never retry."""
        del error
        return ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error with its text."""
        return CloudrecError(str(error))


def graph_of(size: int) -> Graph:
    """Return a graph of equal layers; each resource needs three of the layer before."""
    width = size // LAYERS
    resources = []
    for number in range(size):
        layer, place = divmod(number, width)
        below = [f"node/{(layer - 1) * width + (place + step) % width}" for step in range(3)] if layer else []
        tags = {TAG_CLUSTER: "c", TAG_KEY: f"node/{number}"}
        resources.append(
            Resource(kind="node", name=str(number), needs=tuple(below), tags=tags, hourly_usd=FREE)
        )
    return Graph.of(resources)


def measure(size: int, folder: Path) -> tuple[float, float, float]:
    """Return the seconds of `up`, of a second `up`, and of `down`."""
    cloud, journal = Instant(), Journal(folder / f"{size}.sqlite")
    graph = graph_of(size)

    def up() -> float:
        context = Context(journal=journal, drivers={"node": cloud})
        began = time.perf_counter()
        known, searched = journal.known("c"), list(cloud.resources.values())
        planned = plan("c", graph, context, known=known, searched=searched)
        apply(planned, graph, context)
        return time.perf_counter() - began

    def down() -> float:
        context = Context(journal=journal, drivers={"node": cloud})
        began = time.perf_counter()
        existing = merge(journal.known("c"), list(cloud.resources.values()))
        removal = plan_removal("c", existing, keep_data=False)
        destroy(removal, graph, context, lambda: list(cloud.resources.values()))
        return time.perf_counter() - began

    return up(), up(), down()


def main() -> int:
    """Print the table; return 1 if a limit is exceeded."""
    print(describe_machine())
    print(f"{'count':>8} {'up s':>8} {'again s':>8} {'down s':>8} {'us each':>11}")
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        measure(100, Path(folder))  # imports and the first connection
        for size in SIZES:
            up, again, down = measure(size, Path(folder))
            print(f"{size:8} {up:8.2f} {again:8.2f} {down:8.2f} {up / size * 1e6:11.0f}")
            ok &= size != LIMIT_SIZE or max(up, again, down) <= LIMIT_S
    peak = rusage.getrusage(rusage.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"peak memory {peak:.0f} MB (limit {LIMIT_MB:.0f}); {LIMIT_SIZE} resources: limit {LIMIT_S:g} s each"
    )
    return 0 if ok and peak <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
