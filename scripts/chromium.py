"""Find Debian's chromium for the tests of the pages, and install it by apt where that is possible.

`python -m scripts.chromium` prints where it is, or 3 and the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "fonts-dejavu-core")  # without a font, no text has a size


class ChromiumUnavailableError(Exception):
    """There is no browser, and it cannot be installed."""


def chromium() -> str:
    """Return the browser's path.

    Raises:
        ChromiumUnavailableError: it is missing and cannot be installed.
    """
    if found := _found():
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ChromiumUnavailableError("there is no chromium (apt-get install chromium)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", *_PACKAGES)):
        done = subprocess.run(
            ["apt-get", "--quiet", *words],  # noqa: S607 - found on PATH, as the others are
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise ChromiumUnavailableError(f"apt-get {words[0]} failed: {said}")
    if found := _found():
        return found
    raise ChromiumUnavailableError("apt-get has installed no chromium")


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def main() -> int:
    """Print where it is; 3 with the reason if it cannot be had."""
    try:
        print(chromium())
    except ChromiumUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
