"""The components of the pages about runs: what is read for them, and how it becomes HTML.

The report and the pages of `cloudrec ui` are made of the same ones. They are complete without a script.
"""
