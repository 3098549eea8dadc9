"""What the launchers of Kubernetes share: a run becomes objects, and objects tell how the run is."""
