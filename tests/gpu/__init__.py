"""Questions to a real GPU, asked by one prepared script; see `python -m tests.gpu --help`."""
