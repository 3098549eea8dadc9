"""The nodes' side: runs the containers of pods as processes of this machine and tells of them in the pods' status."""
