"""Which warnings does an operator get about a plan that a run accepts?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eos.transform.nondeterminism import unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.plan.plan import Plan


def cautions(plan: Plan, out: DataFrame) -> Iterator[str]:
    """Return warnings about the plan. `out` has the rows that the sinks read."""
    changing = unstable(out)
    if changing:
        yield (
            f"the transforms use {', '.join(changing)}: a micro-batch that is retried gets "
            "other values"
        )
    # The loader rejects a file with both settings, so `--once` was given on the command line.
    if plan.is_once and "max_records" in plan.source.model_fields_set:
        yield (
            f"{plan.names.pipeline}: --once reads all records in one micro-batch, so "
            f"`max_records: {plan.source.max_records}` of the pipeline file is ignored. Use "
            "--available-now to keep it"
        )
