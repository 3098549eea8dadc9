"""How long `cloudrec --help` takes, and how many modules it imports, compared with an empty click command.

The two are started alternately, so that a busy machine slows both; the median of the ratios is what counts.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
CANDIDATES = {
    "python, nothing": "pass",
    "bare click": "import click\n@click.group()\ndef g(): pass\ng.main(['--help'], standalone_mode=False)",
    "cloudrec": "from cloudrec.cli.main import run\nrun(['--help'])",
}


def seconds(program: str) -> float:
    """Time one start of Python with a program."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def modules(program: str) -> int:
    """Count what a program has imported when it ends."""
    counting = program + "\nimport sys\nprint(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", counting], check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    for program in CANDIDATES.values():
        seconds(program)  # warm the file cache
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(ROUNDS):
        for name, program in CANDIDATES.items():
            times[name].append(seconds(program))
    print(f"{'':16} {'modules':>8} {'min ms':>8} {'median':>8} {'max':>8}")
    for name, program in CANDIDATES.items():
        low, middle, high = min(times[name]), statistics.median(times[name]), max(times[name])
        print(f"{name:16} {modules(program):8} {low * 1e3:8.1f} {middle * 1e3:8.1f} {high * 1e3:8.1f}")


if __name__ == "__main__":
    main()
