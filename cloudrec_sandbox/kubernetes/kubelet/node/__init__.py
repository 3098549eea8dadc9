"""What a node has: devices, memory, images, service account files."""
