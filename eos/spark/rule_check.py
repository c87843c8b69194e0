"""May the rules of `expect` be asked twice, and give the same answer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import TransformError
from eos.transform.nondeterminism import unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.plan.plan import Plan


def require_lasting(plan: Plan, stream: DataFrame) -> None:
    """Refuses rules that depend on more than their record. Which records are refused is asked once
    to take the others, and once more to write the dead letters; and again by a redo."""
    found = unstable(plan.decode.apply(stream))
    if found:
        raise TransformError(
            f"the rules of `expect` use {', '.join(found)}: a record that was taken could be "
            "refused when it is asked again",
            hint="let a rule depend on nothing but its record",
        )
