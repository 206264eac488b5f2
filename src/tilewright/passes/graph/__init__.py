"""Graph -> graph passes, one job per file. `pipeline.py` lists them in order."""
