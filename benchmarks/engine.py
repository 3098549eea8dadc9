"""What the resource engine itself costs: `up`, `up` again and `down` of graphs whose cloud answers at once.

The cloud is a dictionary, so that nothing but the engine, its threads and its journal is measured. The graph
is what a large deployment looks like: layers of which each thing needs some of the layer before. Time
should be linear in the number of things (twice the things, twice the seconds), 2,000 take at most 2 s up, and
memory stays below 150 MB.
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
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    Condition,
    Difference,
    Graph,
    Observed,
    Resource,
    Verdict,
)
from cloudrec.engine.journal import Journal
from cloudrec.engine.plan import merge, plan
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES = (500, 1000, 2000, 4000)
LAYERS = 10
LIMIT_S, LIMIT_SIZE = 2.0, 2000
LIMIT_MB = 150.0


@dataclass
class Instant:
    """A cloud that answers at once."""

    things: dict[str, Observed] = field(default_factory=dict)
    deadline_s: float = 60.0
    poll_s: float = 1.0

    def find(self, resource: Resource) -> Observed | None:
        """Look it up."""
        return self.things.get(resource.name)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Agree."""
        del resource, observed
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Put it there."""
        del token, identities
        self.things[resource.name] = Observed(
            kind=resource.kind,
            name=resource.name,
            identity=resource.name,
            condition=Condition.READY,
            tags=resource.tags,
        )
        return resource.name

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Never asked for."""
        raise NotImplementedError

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Be ready at once."""
        del kind
        return (Condition.READY if identity in self.things else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Take it away."""
        self.things.pop(observed.identity, None)

    def verdict(self, error: Exception) -> Verdict:
        """Never refuse."""
        del error
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say it as it is."""
        return CloudrecError(str(error))


def graph_of(size: int) -> Graph:
    """Layers of equal size; each thing needs three of the layer before."""
    width = size // LAYERS
    resources = []
    for number in range(size):
        layer, place = divmod(number, width)
        below = (
            [f"thing/{(layer - 1) * width + (place + step) % width}" for step in range(3)] if layer else []
        )
        tags = {TAG_CLUSTER: "c", TAG_KEY: f"thing/{number}"}
        resources.append(Resource(kind="thing", name=str(number), needs=tuple(below), tags=tags))
    return Graph.of(resources)


def measure(size: int, folder: Path) -> tuple[float, float, float]:
    """Seconds of `up`, of `up` again, and of `down`."""
    cloud, journal = Instant(), Journal(folder / f"{size}.sqlite")
    graph = graph_of(size)

    def up() -> float:
        context = Context(journal=journal, drivers={"thing": cloud})
        began = time.perf_counter()
        known, searched = journal.known("c"), list(cloud.things.values())
        planned = plan("c", graph, context, known=known, searched=searched)
        apply(planned, graph, context)
        return time.perf_counter() - began

    def down() -> float:
        context = Context(journal=journal, drivers={"thing": cloud})
        began = time.perf_counter()
        existing = merge(journal.known("c"), list(cloud.things.values()))
        removal = plan_removal("c", existing, keep_data=False)
        destroy(removal, graph, context, lambda: list(cloud.things.values()))
        return time.perf_counter() - began

    return up(), up(), down()


def main() -> int:
    """Print the table; 1 where a limit is missed."""
    print(describe_machine())
    print(f"{'things':>8} {'up s':>8} {'again s':>8} {'down s':>8} {'us a thing':>11}")
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        measure(100, Path(folder))  # imports and the first connection
        for size in SIZES:
            up, again, down = measure(size, Path(folder))
            print(f"{size:8} {up:8.2f} {again:8.2f} {down:8.2f} {up / size * 1e6:11.0f}")
            ok &= size != LIMIT_SIZE or max(up, again, down) <= LIMIT_S
    peak = rusage.getrusage(rusage.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB (limit {LIMIT_MB:.0f}); {LIMIT_SIZE} things: limit {LIMIT_S:g} s each")
    return 0 if ok and peak <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
