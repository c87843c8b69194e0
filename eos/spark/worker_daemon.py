"""Start the process that forks Spark's Python workers, faster than Spark does.

It runs Spark's own daemon, imported from the installed package instead of the archive. It imports
nothing that Spark's daemon does not import: a process that forks must have a single thread, and
pyarrow, for instance, starts more.
"""

from __future__ import annotations

from eos.spark.installed_pyspark import prefer_installed

if __name__ == "__main__":
    prefer_installed()
    from pyspark.daemon import manager

    manager()
