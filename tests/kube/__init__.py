"""A real Kubernetes control plane for tests, from the binary of hack/kubernetes-build."""
