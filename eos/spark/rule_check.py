"""Do the rules of `expect` give the same result if they are evaluated twice?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import TransformError
from eos.transform.nondeterminism import unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.plan.plan import Plan


def require_lasting(plan: Plan, stream: DataFrame) -> None:
    """Raise TransformError if a rule depends on anything but its record.

    Rules are evaluated several times: to write the accepted records, to write the dead letters, and
    again in each retry. All of these must reject the same records.
    """
    found = unstable(plan.decode.apply(stream))
    if found:
        functions = ", ".join(found)
        raise TransformError(
            "rule_nondeterministic",
            f"the rules of `expect` use {functions}: a record that was accepted could be rejected "
            "when the rule is evaluated again",
            hint="use only the record's own columns in a rule",
        )
