"""Install Prometheus with promtool by apt, for the tests of metrics; run it as root.

Standard library only. The tests start their own Prometheus, and do not use the package's unit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGE, PROGRAMS = "prometheus", ("prometheus", "promtool")


def missing() -> list[str]:
    """Return the programs that are not there."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def main() -> int:
    """Install what is missing; return 3 if that is not possible."""
    if not missing():
        return 0
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        why = "there is no apt-get" if apt is None else "only root may install it"
        print(f"error: {' and '.join(missing())} cannot be installed: {why}", file=sys.stderr)
        return 3
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", PACKAGE)):
        done = subprocess.run([apt, *words], env=environment, capture_output=True, text=True, check=False)
    if missing():
        print(f"error: apt-get could not install {PACKAGE}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
