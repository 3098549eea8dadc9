"""The sharded TorchRec DLRM trainer: stands alone, knows nothing of cloudrec."""
