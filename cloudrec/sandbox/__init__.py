"""The old name of the stand-ins: `python -m cloudrec.sandbox` runs `python -m cloudrec_sandbox`.

The stand-ins are their own distribution, `cloudrec-sandbox`. Nothing in cloudrec imports it.
"""
