"""`python -m trainer.publish`: publish a run's checkpoints as versions for servers.

The command's public name; `trainer.commands.publish` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.publish import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
