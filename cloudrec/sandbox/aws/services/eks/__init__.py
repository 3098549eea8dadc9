"""EKS, all of it ours: moto's knows no lifecycle, no add-on and no access entry.

Settings of /_control: `kubernetes`: {"endpoint": URL, "certificate_authority": base64}, what clusters made
from now on tell of their API server; `eviction_blocked`: true, then pods that nobody can evict make an
update of a node group fail unless it is forced.
"""
