"""What runs inside a pod, or any other container: `python -m cloudrec.pod COMMAND`.

    agent -> torchrun -> one `rank` for each process -> the trainer

The agent makes the node ready (files of earlier pods, the dataset, the transport), keeps what the run leaves
in the cluster's storage, and ends with a code that tells its engine whether to start another pod.
"""
