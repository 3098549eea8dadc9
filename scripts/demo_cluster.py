"""`make demo-cluster`: a cloud's whole flow, rehearsed on this machine by the commands that a user types.

The stand-ins of AWS and of Kubernetes run here as one. A cluster of two p4d nodes comes up with its device
plugins, a dataset is pushed to its bucket, and two runs of 2 nodes x 2 processes train in pods that are
processes of this machine. One run is left in peace. Of the other a node is taken away, as spot nodes are, and
it resumes by itself; then it is stopped and resumed. Both must have seen the same samples and end with the
same model, bit for bit. At the end the cluster is removed, and nothing of it is left in the account.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from cloudrec_sandbox.core.client import Control
from scripts.demo import Shell

ROWS = 12_000
PROCESSES = 2
SPEED = 600  # how many times faster than a real one the cloud lives
TRAINER_FLAGS = (
    *("--deterministic", "--num_epochs", "40", "--batch_size", "64", "--embedding_dim", "8"),
    *("--dense_arch_layer_sizes", "16,8", "--over_arch_layer_sizes", "16,1"),
    *("--checkpoint_interval", "100", "--log_interval", "20"),
)
DISTURBED_AT, STOPPED_AT = 0.25, 0.6  # of the steps
PATIENCE_S = 600.0
_POLL_S = 1.0
_QUOTA = "ec2/L-417A185B"  # on-demand P instances, of which a fresh account may have none

WHOLE, DISTURBED = "undisturbed", "disturbed"


def main() -> int:
    """Run the demo; 0 when both runs saw the same samples and made the same model, and nothing is left."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cloudrec-demo-")))
        nodes = stack.enter_context(StandIn("kubernetes"))
        cloud = stack.enter_context(StandIn("aws"))
        link(cloud, nodes)
        os.environ |= cloud.told["env"] | {"CLOUDREC_SANDBOX_SPEED": str(SPEED)}
        del os.environ["CLOUDREC_CLUSTER_ADDONS"]  # an API server answers
        shell = Shell(folder)
        before = cloud.control.ask("GET", "/state")["existing"]
        try:
            summaries = rehearse(shell, nodes)
        finally:
            shell.run("down", "aws", "--yes")
        left = set(cloud.control.ask("GET", "/state")["existing"]) - set(before)
    return judge(summaries, left, minutes=(time.monotonic() - began) / 60)


class StandIn:
    """One stand-in as its own process, for as long as a block lasts."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-P", "-m", "cloudrec_sandbox", name, "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        self.told: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.control = Control.of(self.told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def link(cloud: StandIn, nodes: StandIn) -> None:
    """Have the cloud's clusters served by the other stand-in, and its pods find the cloud."""
    cloud.control.order(speed=SPEED, quotas={_QUOTA: 192}, kubernetes=nodes.told)
    given = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    nodes.control.order(environment={name: cloud.told["env"][name] for name in given})


def rehearse(shell: Shell, nodes: StandIn) -> dict[str, dict[str, Any]]:
    """Do it all; the runs' summaries."""
    shell.run("up", "aws", "--nodes", "2", "--ttl", "8h", "--yes")
    shell.run("data", "synth", "raw", "--rows", str(ROWS), "--seed", "1")
    shell.run("data", "prepare", "raw", "prepared", "--min-frequency", "300")
    shell.run("data", "push", "prepared", "--cluster", "aws")
    launch(shell, WHOLE)
    shell.run("doctor", "--cluster", "aws")
    launch(shell, DISTURBED, "--detach")
    take_a_node(shell, nodes)
    stop_and_resume(shell)
    for run in (WHOLE, DISTURBED):
        shell.run("status", run)
        shell.run("report", run)
    (cluster,) = shell.ask("status", "aws")["clusters"]
    if cluster["state"] != "READY":
        raise RuntimeError(f"the cluster is {cluster['state']} after its first run: {cluster['missing']}")
    return {run: summary_of(shell, run) for run in (WHOLE, DISTURBED)}


def launch(shell: Shell, run: str, *options: str) -> None:
    """Launch one of the runs: they differ by name alone. There are no GPUs here, hence --allow-tcp."""
    where = ("--provider", "aws", "--name", run)  # no image and no dataset is named: see the README
    what = ("--nproc-per-node", str(PROCESSES), "--allow-tcp", "--yes")
    shell.run("train", *where, *what, *options, "--", *TRAINER_FLAGS)


def take_a_node(shell: Shell, nodes: StandIn) -> None:
    """Take one of a run's nodes away in mid-run, and watch it come back."""
    view = wait_for(shell, DISTURBED_AT)
    node = view["workers"][0]["node"]
    print(f"\nstep {view['step']}: the cloud takes {node} away", flush=True)
    nodes.control.order(evict={"node": node, "how": "spot"})
    step = view["step"]
    while (view := view_of(shell))["preemptions"] == 0 or int(view["step"] or 0) <= step:
        if view["state"] in {"FAILED", "INTERRUPTED"}:
            raise RuntimeError(f"the run did not outlive its node: it is {view['state']}: {view['cause']}")
        time.sleep(_POLL_S)
    shell.run("status", DISTURBED)
    shell.run("logs", DISTURBED, "--rank", "0", "--tail", "5")


def stop_and_resume(shell: Shell) -> None:
    """Stop the run gracefully, and resume it."""
    wait_for(shell, STOPPED_AT)
    shell.run("stop", DISTURBED)
    shell.run("train", "--resume", DISTURBED, "--yes")


def view_of(shell: Shell) -> dict[str, Any]:
    """The disturbed run as `cloudrec status` shows it."""
    view: dict[str, Any] = shell.ask("status", DISTURBED)["runs"][0]
    return view


def wait_for(shell: Shell, share: float) -> dict[str, Any]:
    """Wait until a share of the steps is done and a checkpoint is there; the run then."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        view = view_of(shell)
        if view["state"] in {"FAILED", "SUCCEEDED", "INTERRUPTED"} or time.monotonic() > give_up:
            raise RuntimeError(f"the run is {view['state']} before it was disturbed: {view['cause']}")
        if view["step"] and view["total_steps"] and view["step"] >= share * view["total_steps"]:
            return view
        time.sleep(_POLL_S)


def summary_of(shell: Shell, run: str) -> dict[str, Any]:
    """What the trainer says of a run that has finished, brought here from the cluster's bucket."""
    text = (shell.home / "runs" / run / "summary.json").read_text(encoding="utf-8")
    summary: dict[str, Any] = json.loads(text)
    return summary


def judge(summaries: dict[str, dict[str, Any]], left: set[str], *, minutes: float) -> int:
    """Print what had to hold, and whether it does; 1 when something does not."""
    whole, disturbed = summaries[WHOLE], summaries[DISTURBED]
    for name in ("samples_seen", "step", "samples_digest", "model_digest", "auc", "restarts"):
        print(f"{name:16}{str(whole[name])[:24]:>26}{str(disturbed[name])[:24]:>26}")
    demands = {
        "the disturbed run was started again": disturbed["restarts"] > 0,
        "it saw every sample as often as the undisturbed one": _same(whole, disturbed, "samples_digest"),
        "it ended with the undisturbed one's model, bit for bit": _same(whole, disturbed, "model_digest"),
        f"nothing is left in the account {sorted(left) or ''}": not left,
    }
    for demand, met in demands.items():
        print(f"{'yes' if met else 'NO ':3} {demand}")
    print(f"{minutes:.1f} minutes in all")
    return 0 if all(demands.values()) else 1


def _same(one: dict[str, Any], other: dict[str, Any], digest: str) -> bool:
    return one[digest] is not None and one[digest] == other[digest]


if __name__ == "__main__":
    sys.exit(main())
