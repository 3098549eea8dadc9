"""`python -m trainer.plan`: print a sharding plan for other machines than this one.

The command's public name; `trainer.commands.plan` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.plan import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
