r"""The data tools.

`synth` makes Criteo-format files with a known best AUC, `prepare` converts such files to the training format,
`check` verifies a prepared dataset.

    files --sources.py--> chunks of lines --tsv.py--> rows --pipeline.py--> shards in OUT/{train,test}/
                                                                        \\-encode.py--> ids
    vocabulary.py keeps what the ids mean, encoding.py names it by a digest;
    folder.py moves them into place, manifest.py describes them in dataset.json, written last.

`prepare/table_*.py` prepare tables of any columns by a feature schema (cloudrec_contract/features.py).

Importing this package does not import numpy or polars; only the modules that use them do.
"""

from __future__ import annotations

import importlib.util

from cloudrec.errors import MissingExtraError

_NEEDED = ("numpy", "polars", "isal", "scipy")


def require_extra(*more: str) -> None:
    """Raise MissingExtraError if a module of the extra `data`, or one of `more`, is not installed."""
    for module in (*_NEEDED, *more):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("data", module=module)
