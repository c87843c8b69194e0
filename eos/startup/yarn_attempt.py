"""Is this driver a restart by YARN?

With `--deploy-mode cluster` YARN starts a failed application's driver again, whatever its exit code
was, and with the same command line. So a restart decides itself whether it may fence an instance.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

# YARN's id of the driver's container: the application's two numbers, the attempt, the container.
_CONTAINER = re.compile(r"container_(?:e\d+_)?(\d+_\d+)_(\d+)_\d+")
_OF_SPARK = "SPARK_YARN_STAGING_DIR"  # Spark sets it for its application master only


@dataclass(frozen=True, slots=True)
class YarnAttempt:
    """One start of the driver of a YARN application."""

    application: str
    number: int  # 1 is the first start
    submitted_ms: int  # when the application was submitted, by YARN's clock

    @property
    def is_restart(self) -> bool:
        return self.number > 1


def yarn_attempt(environ: Mapping[str, str] | None = None) -> YarnAttempt | None:
    """Return YARN's attempt that this process is; None for a driver that YARN did not start."""
    env = os.environ if environ is None else environ
    found = _CONTAINER.fullmatch(env.get("CONTAINER_ID", ""))
    if found is None or _OF_SPARK not in env:
        return None
    submitted = env.get("APP_SUBMIT_TIME_ENV", "")
    submitted_ms = int(submitted) if submitted.isdecimal() else 0
    return YarnAttempt(f"application_{found[1]}", int(found[2]), submitted_ms)
