"""Tests on a whole Kubernetes: real scheduler, kubelet and containers."""
