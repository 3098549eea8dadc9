"""`python -m trainer.export`: write a checkpoint's model as plain files for serving.

The command's public name; `trainer.commands.export` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.export import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
