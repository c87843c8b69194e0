"""The environment of a machine that has Java, Spark and a Python without packages."""

from __future__ import annotations

import os
import venv
from pathlib import Path

from eos.launch import spark
from eos.launch.java_wheel import ensure_java

JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def bare_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables. The Python is created in `folder`."""
    python = folder / "python"
    venv.create(python, with_pip=False)
    home = spark.find_spark().home
    java = ensure_java().home
    return {
        "PATH": os.pathsep.join([str(python / "bin"), str(java / "bin"), "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM_FLAGS,
        "SPARK_LAUNCHER_OPTS": JVM_FLAGS,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
