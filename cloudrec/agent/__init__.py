"""The processes beside the trainer, in a pod or on a node: `python -m cloudrec.agent COMMAND`.

    agent -> torchrun -> one `rank` for each process -> the trainer

The agent prepares the node (the dataset, the transport, the files of earlier pods), uploads the run's files
to the cluster's storage, and ends with an exit code by which its engine decides whether to start another pod.
"""
