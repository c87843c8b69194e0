"""Delta tables beside a pipeline.

lake               pipelines with Delta tables, on Spark
proven_lake        a ledger and its Delta table, written by delta-rs, and the proof of both
"""
