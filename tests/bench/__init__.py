"""The benchmark: gpuslice and a Go driver on upstream's helper, side by side in one run."""
