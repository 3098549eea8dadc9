"""`--dataset trainer.data.synthetic:made_up`: the public name of made-up samples.

`trainer.data.formats.synthetic` implements it.
"""

from __future__ import annotations

from trainer.data.formats.synthetic import made_up

__all__ = ["made_up"]
