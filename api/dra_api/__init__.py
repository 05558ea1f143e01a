"""gpuslice: see the project README."""
