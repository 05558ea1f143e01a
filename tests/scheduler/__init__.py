"""The embedded scheduler beside Kubernetes' own: random pods, the same answers."""
