"""Stand-ins for the clouds: the distribution cloudrec-sandbox, started as a program.

cloudrec does not import it, so that no code of a stand-in can run in a command for a real cloud.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = "cloudrec_sandbox"


def become(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by `python -m cloudrec_sandbox ARGUMENTS`.

    Raises:
        MissingExtraError: the distribution is not installed.
    """
    if find_spec(_PACKAGE) is None:
        raise MissingExtraError("sandbox", module=_PACKAGE)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", _PACKAGE, *arguments])  # noqa: S606 - no shell is wanted
