"""The registry for images on Google Cloud."""
