"""Proof that what we compute is what the reference computes."""
