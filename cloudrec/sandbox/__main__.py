"""`python -m cloudrec.sandbox ARGUMENTS`: the same as `python -m cloudrec_sandbox ARGUMENTS`."""

from __future__ import annotations

import sys

from cloudrec.app.stand_ins import become
from cloudrec.errors import CloudrecError

if __name__ == "__main__":
    try:
        become(sys.argv[1:])
    except CloudrecError as error:
        print(f"error: {error.message}; {error.remedy}", file=sys.stderr)
        sys.exit(error.exit_code)
