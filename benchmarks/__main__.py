"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all of them, one after the other.

Each is a module of this package with a `main()` that prints a table with a named reference.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "startup",
    "prepare",
    "prepare_memory",
    "push",
    "reading",
    "evaluation",
    "throughput",
    "embedding",
    "step_profile",
    "engine",
    "status",
    "makespan",
    "interval",
    "learning",
    "checkpoint",
    "after_checkpoint",
    "device_snapshot",
    "quantized_restores",
    "kubernetes",
    "launchers",
    "user_script",
    "serving",
    "mutants",
    "managed",
    "publishing",
    "plan_accuracy",
)


def main() -> int:
    """Run each benchmark in its own process, so that none is affected by what another leaves."""
    asked = sys.argv[1:] or list(BENCHMARKS)
    for unknown in [name for name in asked if name not in BENCHMARKS]:
        print(
            f"error: there is no benchmark {unknown!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    failed = 0
    for name in asked:
        print(f"\n== {name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
