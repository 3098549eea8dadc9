"""`python -m cloudrec.pod COMMAND`: each command is a module of its own, imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

from cloudrec.errors import CloudrecError

_COMMANDS = {
    "agent": "make this pod ready, run torchrun in it, keep what the run leaves: agent -- TORCHRUN...",
    "rank": "run one rank of the trainer, below torchrun: rank -- TRAINER...",
    "probe": "tell whether a pod can read a dataset and write results",
    "guard": "end runs and let nodes go once the cluster's time or budget is up",
    "smoke": "exchange tensors between all ranks and measure, in the trainer's place",
    "slurm": "run a node's agent in a job of Slurm's: slurm -- TORCHRUN...",
    "ray": "drive the agents of a Ray cluster, from its head",
    "drive": "drive the agents of a run in a Ray cluster that others use too",
}


def main(arguments: list[str]) -> int:
    """Run one command; the exit code of the process."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print("usage: python -m cloudrec.pod COMMAND\n")
        print("\n".join(f"  {command:8} {line}" for command, line in _COMMANDS.items()))
        return 0
    if name not in _COMMANDS:
        print(f"error: there is no command {name!r}: {', '.join(_COMMANDS)}", file=sys.stderr)
        return 64
    try:
        code: int = import_module(f"cloudrec.pod.{name}").main(arguments[1:])
    except CloudrecError as error:
        remedy = f" ({error.remedy})" if error.remedy else ""
        print(f"error: {error.message}{remedy}", file=sys.stderr, flush=True)
        return 64 if error.exit_code == 2 else 1  # noqa: PLR2004 - the command line's code for bad usage
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
