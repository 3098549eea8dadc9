"""`python -m trainer.dcp`: convert a checkpoint to or from torch.distributed.checkpoint.

The command's public name; `trainer.commands.dcp` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.dcp import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
