"""Records the script of requests in `tests/contract/kubernetes_recorded` on a real API server.

python -m scripts.record_api            on the control plane that tests start, see CONTRIBUTING.md
python -m scripts.record_api KUBECONFIG on another empty cluster of one version, without nodes
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from cloudrec_sandbox.kubernetes.joined.connection import Connection
from tests.contract.kubernetes_recorded import (
    script_objects,
    script_others,
    script_subresources,
    script_workloads,
)
from tests.contract.kubernetes_recorded.replay import FILE, play
from tests.standins.control_plane import control_plane


def main(arguments: list[str]) -> int:
    """Write the data file; return the exit code."""
    parts = (script_objects, script_workloads, script_others, script_subresources)
    steps = [step for part in parts for step in part.steps()]
    with nullcontext(Path(arguments[0])) if arguments else control_plane() as kubeconfig:
        connection = Connection(kubeconfig)
        version = connection.call("GET", "/version")["gitVersion"]
        answers = play(connection, steps)
        connection.close()
    known = json.loads(FILE.read_text("utf-8"))["exceptions"] if FILE.exists() else {}
    rows = [{**step, "answer": answer} for step, answer in zip(steps, answers, strict=True)]
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    head = f'"version": {json.dumps(version)},\n"exceptions": {json.dumps(known, indent=1)},\n'
    FILE.write_text(f'{{{head}"steps": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(rows)} requests to {version} are recorded in {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
