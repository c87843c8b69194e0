"""The changes of a pipeline file since the last run, and what the next run does about each.

Which change stops the next run is decided by the startup's own checks (`inspect.next_start`). This
module only assigns their errors to the changes, and says what an accepted change does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from eos.errors import EosError
from eos.plan.declared import DIGEST, folded, is_folded

Verdict = Literal["may change", "Spark decides", "stops"]


class Change(NamedTuple):
    """A setting of the pipeline file with its value before and now; None if it was or is absent."""

    path: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        if self.before is None or self.now is None:
            what, text = ("added", self.now) if self.before is None else ("removed", self.before)
            return f"{self.path}: {what}" + (f" ({text})" if _is_text(text) else "")
        if _is_text(self.before) and _is_text(self.now):
            return f"{self.path}: {self.before} -> {self.now}"
        return f"{self.path}: changed"


@dataclass(frozen=True, slots=True)
class Effect:
    """A change, and what the next run does about it. `errors` are those that stop that run."""

    change: Change
    text: str
    errors: tuple[EosError, ...] = ()
    is_compared_by_spark: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.errors:
            return "stops"
        return "Spark decides" if self.is_compared_by_spark else "may change"


class _Rule(NamedTuple):
    """The effect of changes of settings whose path begins with `prefix`.

    `codes` are the errors that such a change can cause. With `state`, a pipeline that keeps state
    is compared by Spark with the state in its checkpoint."""

    prefix: str
    text: str
    codes: frozenset[str] = frozenset()
    has_state: bool = False


_SOURCE = frozenset(
    (
        *("left_out", "source_topic_missing", "source_pattern_no_match", "topic_unseen", "gone"),
        *("source_pattern_matches_own_topic", "unknown", "new_truncated"),
    )
)
_STATE = frozenset({"state_lost"})
_TARGET = frozenset({"target_topic_missing", "topic_unseen"})
_TABLE = frozenset(
    ("table_replaced", "table_behind", "table_ahead", "table_history", "table_forgets")
)
_STAMPS = frozenset({"producers_changed", "producers_lost", "dedup_state_remote"})
_TIMEOUT = frozenset({"kafka_invalid_transaction_timeout"})
_NEXT = "applies to the next micro-batch"
_TOPICS = "a new topic is read from its beginning; one that is not read any more stops the run"
_CLUSTER = "topics of another cluster have other ids, so the next run stops"
_STEPS = "applies to records that are not committed yet; earlier output stays as it is"
_SINK = "applies to the next micro-batch; records that are in a topic stay there"
_LAKE = "applies to the next micro-batch; a new table gets no earlier rows, a removed one stays"
_COLUMNS = "the run checks, before it takes over, that the rows fit the table"
_FIRST = "only for a topic that does not exist yet"
_RULES = (
    _Rule("source.kafka.topic", _TOPICS, _SOURCE),
    _Rule("source.kafka.pattern", _TOPICS, _SOURCE),
    _Rule("source.kafka.cluster", _CLUSTER, _SOURCE | {"recreated", "source_cluster_same"}),
    _Rule("source.kafka.start", "has no effect: the ledger has the position"),
    _Rule("source.kafka", _NEXT),
    _Rule("source.reader", "applies to the next run"),
    _Rule("source", _STEPS, _SOURCE, has_state=True),
    _Rule("dedup.producer", "numbers from other places need states of their own", _STAMPS),
    _Rule("dedup.scope", "another scope needs states of its own", _STAMPS),
    _Rule("dedup", _NEXT, _STAMPS, has_state=True),
    _Rule("tables", _STEPS, has_state=True),
    _Rule("expect", _STEPS, has_state=True),
    _Rule("transform", _STEPS, _STATE, has_state=True),
    _Rule("output_mode", _NEXT, has_state=True),
    _Rule("sink.delta", f"{_LAKE}; {_COLUMNS}", _TABLE),
    _Rule("sink.kafka", _SINK, _TARGET),
    _Rule("sink.dead_letter", _SINK, _TARGET),
    _Rule("sink", f"{_SINK}; {_COLUMNS}", _TARGET | _TABLE),
    _Rule("transaction", "applies to the next transaction", _TIMEOUT),
    _Rule("", _NEXT),
)
_ADDED_DEDUP = "every producer is unknown until its next record: `on_unknown` decides"
_REMOVED_DEDUP = "states of producers are dropped with the next commit"


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """Return the settings that differ, in the order of the file."""
    if is_folded(before) != is_folded(now):
        before, now = folded(before), folded(now)
    paths = [*now, *(path for path in before if path not in now)]
    found = (Change(path, before.get(path), now.get(path)) for path in paths)
    return [each for each in found if each.before != each.now]


def effects(
    found: Sequence[Change],
    before: Mapping[str, str],
    now: Mapping[str, str],
    errors: Sequence[EosError],
    *,
    keeps_state: bool,
) -> tuple[list[Effect], list[EosError]]:
    """Return what the next run does about each change, and the errors that no change explains.

    `before` and `now` have all settings, `errors` would stop the next startup. With `keeps_state`,
    the last run's transforms kept state."""
    had, has = (any(path.split(".")[0] == "dedup" for path in each) for each in (before, now))
    result: list[Effect] = []
    for change in found:
        rule = next(each for each in _RULES if _begins(change.path, each.prefix))
        text = rule.text
        if rule.prefix.startswith("dedup") and had != has:
            text = _ADDED_DEDUP if has else _REMOVED_DEDUP
        is_creation = ".create." in change.path
        stops = () if is_creation else tuple(e for e in errors if e.code in rule.codes)
        result.append(
            Effect(
                change,
                _FIRST if is_creation else text,
                stops,
                keeps_state and rule.has_state,
            )
        )
    explained = {id(error) for each in result for error in each.errors}
    return result, [error for error in errors if id(error) not in explained]


def _begins(path: str, prefix: str) -> bool:
    """Return whether the path is the prefix or below it. `source.kafka.topic` also has
    `source.kafka.topics`."""
    rest = path[len(prefix) :]
    return path.startswith(prefix) and (not prefix or not rest or rest[0] in ".[s")


def _is_text(text: str | None) -> bool:
    return text is not None and not text.startswith(DIGEST)
