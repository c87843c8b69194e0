"""Convert the `dedup:` section of a pipeline file into dedup's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.config.dedup import place_of
from eos.read.dedup_by import Distinct

if TYPE_CHECKING:
    from eos.config.dedup import Dedup as Declared
    from eos.config.dedup_by import ByColumns
    from eos.dedup.stamp_columns import StampRules

_EPOCHS = 2**62


def dedup(declared: Declared | None) -> StampRules | None:
    """Return the rules of dedup by producers' sequence numbers, or None if it is not declared."""
    if declared is None:
        return None
    # Imported late, so that verbs for a pipeline without dedup don't load Arrow.
    from eos.dedup.policy import OPTIONS, Policy
    from eos.dedup.stamp_columns import StampPlace, StampRules
    from eos.producers.state import UNWRAPPED, Rules, Verdict

    writes = {"gap": Verdict.GAP, "unknown_producer": Verdict.UNKNOWN_PRODUCER}
    stamp = declared.producer
    answers = {name: getattr(declared, option) for name, option in OPTIONS.items()}
    rules = Rules(
        accepts=frozenset(v for name, v in writes.items() if answers[name] == "accept"),
        sequences=stamp.wraps_at or UNWRAPPED,
        epochs=_EPOCHS,
        is_ordered=declared.scope == "partition",
    )
    refused = frozenset(name for name, answer in answers.items() if answer == "fail")
    dead = frozenset(name for name, answer in answers.items() if answer == "dead_letter")
    return StampRules(
        producer=StampPlace(*place_of(stamp.id)),
        epoch=StampPlace(*place_of(stamp.epoch)),
        sequence=StampPlace(*place_of(stamp.sequence)),
        policy=Policy(rules, declared.forget_after_ms, refused, dead, declared.window_records),
        verdict=declared.verdict or "",
        validates_first=declared.validate_first,
    )


def distinct(declared: ByColumns | None) -> Distinct | None:
    """Return the settings of dedup by columns of the user, or None if it is not declared."""
    if declared is None:
        return None
    return Distinct(declared.by, declared.within_ms, declared.watermark)
