r"""The data tools.

`synth` makes Criteo-format files with a known best AUC, `prepare` turns such files into the training format,
`check` verifies what was prepared.

    files --sources.py--> chunks of lines --tsv.py--> rows --pipeline.py--> shards in OUT/{train,test}/
                                                                        \\-encode.py--> ids
    folder.py moves them into place, manifest.py describes them in dataset.json, written last.

Importing this package imports nothing heavy; numpy and polars come in with the modules that use them.
"""

from __future__ import annotations

import importlib.util

from cloudrec.errors import MissingExtraError

_NEEDED = ("numpy", "polars", "isal", "scipy")


def require_extra() -> None:
    """Raise MissingExtraError when a module of the extra `data` is not installed."""
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("data", module=module)
