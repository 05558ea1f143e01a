"""Decisions: pure functions of frozen values. The same input gives the same output, in order."""
