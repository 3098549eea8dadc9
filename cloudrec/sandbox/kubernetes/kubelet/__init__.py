"""The nodes' side: runs the containers of pods as processes, and tells of them in the pods' status."""
