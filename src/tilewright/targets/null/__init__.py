"""The null target: schedules, plans and estimates for a machine that need not exist. It runs nothing."""

from .backend import Artifact, describe, estimate, render, supports

__all__ = ["Artifact", "describe", "estimate", "render", "supports"]
