"""Transactions: what changes the node, in which order, and what survives a crash."""
