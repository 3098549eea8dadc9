"""The packages of cloudrec-sandbox: this folder is the package itself."""

from setuptools import find_packages, setup

NAME = "cloudrec_sandbox"

setup(packages=[NAME, *(f"{NAME}.{package}" for package in find_packages("."))])
