"""The specification: one YAML file, the environment and flags, validated once into frozen objects."""

DEFAULT_FILE = "cloudrec.yaml"
REQUEST_VERSION = 1  # of ClusterSpec as the journal keeps it: see `spec.requests`
