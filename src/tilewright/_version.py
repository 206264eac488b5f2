"""The version, alone in a file so that packaging and the compile cache read it without importing anything."""

__version__ = "0.1.0"
