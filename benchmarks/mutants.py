"""How many wrong requests for machines the stand-ins refuse: the client's requests, changed field by field.

    python -m benchmarks.mutants [--cloud aws|azure|gcp] [--machine TYPE ...] [--every] [--verbose] [--write]
    python -m benchmarks.mutants --record

For a machine type of each shape (`--every`: for each type with a transport profile), `up` runs on the
cloud's stand-in, and its requests for the nodes are kept: launch template and node group, agent pool, or node
pool. Each field is then removed, mistyped, put out of range or given another value, and the request is sent
raw. What the cloud does with it comes from botocore's models, Azure's classes, Google's descriptors and the
documented rules in tests/contract/mutants/rules, each with its source; never from the stand-in. A hole is a
request that the cloud refuses and the stand-in does not.

A request that the cloud accepts and that makes a wrong node has an effect. Where a rule says that the check
of a node finds it, the real agent is run on such a node: `measured` counts those that it refuses by name,
`claimed` those that a rule alone says to be found, `uncaught` those that nothing finds.

The Jobs of runs are sent to the Kubernetes stand-in in the same way; what Kubernetes does with them is the
recorded answer of a real API server, which `--record` asks again where there is one (see CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine, today
from cloudrec_sandbox.kubernetes.joined.connection import Connection
from tests.contract.kubernetes.support import api_server
from tests.contract.mutants import clouds, pods
from tests.contract.mutants.sending import Counts
from tests.e2e.support_mutants import refused
from tests.e2e.support_nodes import why_not
from tests.standins.control_plane import control_plane

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_PERCENT = 95.0
RESULTS = Path(__file__).parent / "results"
_COLUMNS = (
    "machines",
    "mutants",
    "vendor_refuses",
    "refused",
    "percent",
    "holes",
    "free",
    "effect",
    "measured",
    "claimed",
    "uncaught",
    "too_strict",
    "unknown",
)


def main() -> int:
    """Print a row for each cloud; return 1 if a stand-in refuses too few."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cloud", choices=clouds.NAMES, action="append")
    parser.add_argument(
        "--machine", action="append", default=[], help="a machine type; all of them by default"
    )
    parser.add_argument("--every", action="store_true", help="each machine type, not one of each shape")
    parser.add_argument("--record", action="store_true", help="ask a real API server about the changed Jobs")
    parser.add_argument("--verbose", action="store_true", help="print each hole and each refusal too many")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results")
    options = parser.parse_args()
    if options.record:
        return _record()
    found = {
        name: _measured(name, options.machine, every=options.every) for name in options.cloud or clouds.NAMES
    }
    if not options.cloud:
        found["kubernetes"] = _jobs()
    lines = [
        f"# Mutants of requests, {today()}",
        "",
        describe_machine(),
        "",
        f"| cloud | {' | '.join(_COLUMNS)} |",
        f"|{'---|' * (len(_COLUMNS) + 1)}",
        *(
            f"| {name} | {' | '.join(str(counts.row()[column]) for column in _COLUMNS)} |"
            for name, counts in found.items()
        ),
    ]
    print("\n".join(lines))
    if options.verbose:
        for each in (bad for counts in found.values() for bad in (*counts.holes, *counts.too_strict)):
            print(f"{'hole' if each.is_hole else 'too strict'}: {each}")
    if options.write:
        file = RESULTS / f"mutants-{today()}.md"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(counts.share >= LEAST_PERCENT for counts in found.values()) else 1


def _record() -> int:
    with control_plane() as kubeconfig:
        connection = Connection(kubeconfig)
        answers = pods.record(connection)
        connection.close()
    pods.RECORDED.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    print(f"the answers of {answers['version']} are in {pods.RECORDED}")
    return 0


def _jobs() -> Counts:
    counts = Counts()
    with api_server() as server:
        connection = Connection(Path(server.kubeconfig))
        for family in pods.FABRICS:
            counts.results += pods.compare(connection, family).results
        connection.close()
    return counts


def _measured(cloud: str, machines: Sequence[str], *, every: bool) -> Counts:
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder, clouds.requests(cloud, Path(folder)) as asked:
        known = clouds.machines(cloud) if every or machines else clouds.shapes(cloud)
        for machine in [each for each in known if not machines or each in machines]:
            counts.results += asked.results(machine)
            print(f"{cloud} {machine}: {len(counts.results)} mutants so far", file=sys.stderr, flush=True)
    if why := why_not():
        print(f"{cloud}: no node check is measured: {why}", file=sys.stderr)
    else:
        counts.measured = refused(cloud, counts.states)
    return counts


if __name__ == "__main__":
    sys.exit(main())
