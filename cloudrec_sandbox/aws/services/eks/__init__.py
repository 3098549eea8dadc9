"""EKS, without moto: moto's EKS has no lifecycle, no add-on and no access entry.

Settings of /_control: `kubernetes`: {"endpoint": URL, "certificate_authority": base64}, the API server that
clusters made from now on report; `eviction_blocked`: true, then an update of a node group fails unless it is
forced, as with pods that cannot be evicted.
"""
