"""The registry for images on Azure."""
