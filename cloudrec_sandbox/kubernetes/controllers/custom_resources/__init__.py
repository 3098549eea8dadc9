"""Controllers of custom resources: JobSet, PyTorchJob, TrainJob, RayCluster, RayJob."""
