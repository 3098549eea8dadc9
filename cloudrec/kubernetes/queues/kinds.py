"""Kueue's kinds, as kubernetes-sigs/kueue has them in apis/kueue/v1beta2."""

from __future__ import annotations

API = "kueue.x-k8s.io/v1beta2"
LOCAL_QUEUE, CLUSTER_QUEUE = f"{API}/LocalQueue", f"{API}/ClusterQueue"
FLAVOR, TOPOLOGY = f"{API}/ResourceFlavor", f"{API}/Topology"
HOST = "kubernetes.io/hostname"  # the lowest level of a topology; Kueue replaces a lost node only with it
OURS = "cloudrec"  # the LocalQueue that cloudrec makes
