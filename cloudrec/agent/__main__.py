"""`python -m cloudrec.agent COMMAND`: each command is its own module, imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

from cloudrec.errors import CloudrecError
from cloudrec_contract.exit_codes import BAD_CONFIG, FAILED

_COMMANDS = {
    "agent": "prepare this pod, run torchrun, upload the run's files: agent -- TORCHRUN...",
    "rank": "run one rank of the trainer, below torchrun: rank -- TRAINER...",
    "probe": "check whether a pod can read a dataset and write results",
    "metrics": "serve the metrics of a run in a folder for Prometheus",
    "guard": "end runs and release nodes once the cluster's time or budget has ended",
    "smoke": "exchange tensors between all ranks and measure, instead of training",
    "slurm": "run a node's agent in a Slurm job: slurm -- TORCHRUN...",
    "ray": "drive the agents of a Ray cluster, from its head",
    "drive": "drive the agents of a run in a Ray cluster that others use too",
}
_MODULES = {
    "agent": "cloudrec.agent.supervisor.agent",
    "rank": "cloudrec.agent.supervisor.rank",
    "probe": "cloudrec.agent.checks.probe",
    "metrics": "cloudrec.agent.supervisor.exporter",
    "guard": "cloudrec.keeper.guard",
    "smoke": "cloudrec.agent.checks.smoke",
    "slurm": "cloudrec.agent.engines.slurm",
    "ray": "cloudrec.agent.engines.ray",
    "drive": "cloudrec.agent.engines.drive",
}


def main(arguments: list[str]) -> int:
    """Run one command; return the exit code of the process."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print("usage: python -m cloudrec.agent COMMAND\n")
        print("\n".join(f"  {command:8} {line}" for command, line in _COMMANDS.items()))
        return 0
    if name not in _COMMANDS:
        print(f"error: there is no command {name!r}: {', '.join(_COMMANDS)}", file=sys.stderr)
        return BAD_CONFIG
    try:
        code: int = import_module(_MODULES[name]).main(arguments[1:])
    except CloudrecError as error:
        remedy = f" ({error.remedy})" if error.remedy else ""
        print(f"error: {error.message}{remedy}", file=sys.stderr, flush=True)
        return BAD_CONFIG if error.exit_code == 2 else FAILED  # noqa: PLR2004 - the command line's code for bad usage
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
