"""The scoring server of `cloudrec serve`: raw rows in, scores out, over HTTP on one machine.

It joins both sides, so neither imports it: `cloudrec.data.prepare` encodes rows, `trainer.serving` scores
them. `cloudrec serve` replaces itself by `python -m cloudrec_server`.
"""
