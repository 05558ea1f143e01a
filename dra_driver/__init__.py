"""Kubernetes DRA kubelet driver for fine-grained GPU slices."""

__version__ = "0.1.0"
