"""Add-ons: the device plugins and operators that a cluster needs, installed, upgraded and removed."""
