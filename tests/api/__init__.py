"""Tests on a real kube-apiserver."""
