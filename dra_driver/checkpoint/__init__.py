"""The checkpoint hook: what is called before and after a container is checkpointed or restored."""
