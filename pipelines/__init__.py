"""Declared pipelines, a folder each. Never installed: found from the folder above."""
