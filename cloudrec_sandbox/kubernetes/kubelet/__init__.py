"""The nodes' side: runs the containers of pods as processes, and reports them in the pods' status."""
