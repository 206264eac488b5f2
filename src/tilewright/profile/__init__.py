"""Measuring time: of ours, of a peer's, of each region."""
