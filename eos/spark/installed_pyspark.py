"""Spark's Python code as it is installed, before the archive of it that Spark puts in front.

Python keeps what it has compiled of an installed module, and compiles a module of an archive again
in each process. Of Spark's own that is half a second of CPU time for the driver, and three quarters
for the process that forks the Python workers: in every start, before the first record.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ARCHIVE = "pyspark.zip"


def prefer_installed() -> None:
    """To be called before pyspark is imported. Only where the archive is part of an installed
    package that can be imported: then both are the same code. Spark's other archives and jars go
    behind it, too; nothing is taken away, so what is in them alone is found as before."""
    for entry in list(sys.path):
        archive = Path(entry)
        if archive.name != _ARCHIVE:
            continue
        package = archive.parents[2]  # PACKAGE/python/lib/pyspark.zip
        if (package / "__init__.py").exists() and str(package.parent) in sys.path:
            ours = [each for each in sys.path if Path(each).is_relative_to(package)]
            sys.path[:] = [each for each in sys.path if each not in ours] + ours
        return
