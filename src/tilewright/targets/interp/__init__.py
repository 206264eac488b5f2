"""The interpreter as a target: scheduled programs run in NumPy, anywhere, slowly, with every access checked."""

from .backend import Artifact, describe, render, supports

__all__ = ["Artifact", "describe", "render", "supports"]
