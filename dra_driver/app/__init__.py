"""Composition roots: the only place that knows concrete classes."""
