"""The registry for images on AWS."""
