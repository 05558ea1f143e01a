"""Long-lived workers: each has `run(stop)` and runs under a guard; an unexpected end is fatal."""
