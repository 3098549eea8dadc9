"""Install the tools of the image's test, buildah and debootstrap, by apt, if they are missing.

Standard library only, since it runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NEEDED = ("buildah", "debootstrap")


def main() -> int:
    """Install; 3 with the reason where that is not possible."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if not missing:
        return 0
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        why = "there is no apt-get" if apt is None else "only root may install it"
        print(f"error: {' and '.join(missing)} cannot be installed: {why}", file=sys.stderr)
        return 3
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", *missing)):
        done = subprocess.run(
            [apt, "--quiet", *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            print(f"error: apt-get {words[0]} failed: {said}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
