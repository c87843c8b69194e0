"""The process that forks Spark's Python workers on this machine: Spark's own, found quicker.

Nothing is imported here that Spark's does not import. A process that forks must have one thread
only, and pyarrow starts some.
"""

from __future__ import annotations

from eos.spark.installed_pyspark import prefer_installed

if __name__ == "__main__":
    prefer_installed()
    from pyspark.daemon import manager

    manager()
