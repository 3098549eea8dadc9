"""Data files shipped with cloudrec: manifests and example specs."""
