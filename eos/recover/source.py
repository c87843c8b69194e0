"""Plan how `eos recover` lets a pipeline resume if source topics or records are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.snapshot import Snapshot, bounds
from eos.ledger import ranges
from eos.ledger.ranges import PlannedBatch, require_same_topics
from eos.ledger.record import Ends
from eos.recover.change import LedgerChange, LostOffsets, Verb, no_change
from eos.startup.checkpoint_age import upcoming
from eos.startup.checkpoint_dir import choose_checkpoint


def forget_topics(topics: Sequence[str]) -> Verb:
    """Return the action of `eos recover --forget-topic`: remove deleted or recreated topics from
    the ledger.

    A recreated topic is read from its beginning. All such topics must be removed at once: the
    change commits the group's offsets of all topics that are left, and the broker rejects a commit
    for a missing topic.
    """
    names = list(dict.fromkeys(topics))

    def verb(view: Snapshot) -> LedgerChange:
        before = view.position
        known = before.topic_ids.keys() | {tp.topic for tp in before.ends}
        _require_in_ledger(view, names, known)
        missing = view.missing_topics(names)
        now = view.source.topic_ids(set(names) - missing)
        remarks = [_forgetting_note(view, name, now.get(name)) for name in names]
        ends = {tp: end for tp, end in before.ends.items() if tp.topic not in names}
        rest = view.source.topic_ids(known - set(names))  # raises for another missing topic
        require_same_topics(view.name, before, rest)
        ids = {name: each for name, each in before.topic_ids.items() if name not in names}
        after = replace(before, ends=ends, topic_ids=ids, is_reset=True)
        options = " ".join(f"--forget-topic {name}" for name in names)
        return LedgerChange(options, before, after, view.group(ends), remarks)

    return verb


def _require_in_ledger(view: Snapshot, names: Sequence[str], known: Collection[str]) -> None:
    for topic in names:
        if topic not in known:
            topics = ", ".join(sorted(known)) or "no topics"
            raise UsageError(
                "topic_not_in_ledger",
                f"{view.name}: the topic {topic!r} is not in the ledger",
                hint=f"the ledger has {topics}",
                topic=topic,
            )


def _forgetting_note(view: Snapshot, name: str, now: str | None) -> str:
    """Return a sentence on what follows if the topic is removed from the ledger.

    `now` is the topic's current id; None if it is gone. Raise UsageError if its id is unchanged."""
    reads = view.planned.source.reads(name)
    if now is None:
        is_named = reads and view.planned.source.pattern is None
        more = "; remove it from the pipeline file, or the next run stops" if is_named else ""
        return f"{name} is gone: its records after the ledger's ends were never read{more}"
    if not reads:
        return f"{name} is no topic of the source any more: its ends are removed from the ledger"
    if now == view.position.topic_ids.get(name, now):
        raise UsageError(
            "topic_not_recreated",
            f"{view.name}: the topic {name!r} still has the id that is in the ledger ({now}): "
            "after --forget-topic, all its output would be written a second time",
            hint="to do that on purpose, use `--rewind-to` the record before it was read",
            topic=name,
        )
    return (
        f"{name} was recreated (id {now}): it is read from its beginning; records of the old one "
        "after the ledger's ends were never read"
    )


def accept_start(view: Snapshot) -> LedgerChange:
    """Return the change of `--accept-start`: resume at the first offsets that the source still has.

    It accepts records that were deleted before they were read. It also accepts new partitions that
    the checkpoint reads from a later offset than their first."""
    verb, before = "--accept-start", view.position
    view.require_same_topics()
    limits = bounds(view.source, before.ends)
    truncated = {
        tp: limits.earliest[tp]
        for tp, end in sorted(before.ends.items())
        if end < limits.earliest[tp]
    }
    lost = [LostOffsets(tp, before.ends[tp], first) for tp, first in truncated.items()]
    remarks = [
        f"{each.end - each.start:,} offsets of {each.partition} are lost: {each.start} to "
        f"{each.end - 1} were deleted before they were read"
        for each in lost
    ]
    starts, more_lost, more_remarks = _late_partitions(view)
    ends = {**before.ends, **truncated, **starts}
    if ends == before.ends:
        return no_change(verb, before, "every partition has its next record: nothing is lost")
    remarks, lost = remarks + more_remarks, lost + more_lost
    return LedgerChange(verb, before, view.moved(ends), view.group(ends), remarks, lost)


def _late_partitions(view: Snapshot) -> tuple[Ends, list[LostOffsets], list[str]]:
    """Return start offsets, lost offsets and remarks for new partitions.

    These are partitions that the ledger lacks, and that the checkpoint would read from another
    offset than their first one.
    """
    step = _next_step(view)
    if step is None:
        return {}, [], []
    here = view.partitions()
    tps = [tp for tp in ranges.unknown(view.position, step) if tp in here]
    earliest = view.source.earliest(tps)
    differing = {tp: step.starts[tp] for tp in tps if step.starts[tp] != earliest[tp]}
    ends = {tp: max(start, earliest[tp]) for tp, start in differing.items()}
    lost = [
        LostOffsets(tp, start, earliest[tp])
        for tp, start in differing.items()
        if start < earliest[tp]
    ]
    remarks = [
        f"{tp} is new and begins at {end}"
        + (
            f": {end - earliest[tp]:,} offsets before it are not read"
            if end > earliest[tp]
            else f": {end - differing[tp]:,} offsets that were planned are gone"
        )
        for tp, end in ends.items()
    ]
    return ends, lost, remarks


def _next_step(view: Snapshot) -> PlannedBatch | None:
    """Return the micro-batch that Spark would run next from the checkpoint; None if there is none.

    It is None, too, if the checkpoint can't be read, or if the next run does not use it.
    """
    position, planned = view.position, view.planned
    if view.files is None or position.is_reset:
        return None
    planned = replace(planned, is_stateful=position.keeps_state)
    with suppress(PromiseBrokenError):
        chosen = choose_checkpoint(planned, view.files, position, view.last)
        checkpoint = view.with_plan(chosen)
        return None if checkpoint is None else upcoming(checkpoint).step
    return None
