"""`python -m trainer.calibrate`: time steps of small models on this machine, for `cloudrec plan`.

The command's public name; `trainer.commands.calibrate` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.calibrate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
