"""Tile IR + schedule -> Scheduled IR.

    analysis    who uses what, what must be given memory
    context     where values live; the scalar expression of one element
    nests       elementwise work, stores, folds and scans as fused loop nests
    dots        matrix products: staging, panels, register blocks
    regions     the order of work in a region; loops, branches and their carried memory; the whole program
"""

from .regions import lower

__all__ = ["lower"]
