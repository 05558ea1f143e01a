"""An embedded kubelet and API server subset: for the demo, for tests, never for production."""
