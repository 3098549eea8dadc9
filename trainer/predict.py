"""`python -m trainer.predict`: score a split with a trained model.

The command's public name; `trainer.commands.predict` implements it.
"""

from __future__ import annotations

import sys

from trainer.commands.predict import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
