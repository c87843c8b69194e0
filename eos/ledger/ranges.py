"""Is a micro-batch done, is it to be run, or does it contradict the ledger?

Spark plans a range [S, E) for each partition and writes it into its checkpoint. The ledger has the
end L of what is committed. If the two disagree, the ledger is right. The run stops unless it is
certain that no record is lost or repeated. For each partition:

    L unknown    a new partition: it must start at its earliest record, otherwise stop
    L < S        a hole: stop
    L = S        run
    S < L < E    inside: run from L on
    L = E        done
    L > E        beyond: stop (a startup replaces such a checkpoint of a stateless pipeline first)

The partitions of one micro-batch may be in different cases. If one of them says stop, nothing runs.

The state of a stateful micro-batch includes all of its rows or none, so it can't run from L on. It
is done if the ledger's last micro-batch has the same query id and batch id. Equal ends alone do not
prove it: a micro-batch without a new record may still emit rows, when a watermark completes a
group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends, Position

_STATE_LOSS = (
    ". The old checkpoint's state is lost: start with --accept-state-loss then, and every total "
    "restarts from zero"
)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A micro-batch as Spark planned it: its ids, and the offsets that it reads.

    A partition that Spark sees for the first time has no start. `is_cut`: Spark planned more than
    these ranges, so the next run can't resume with Spark's checkpoint. `is_opaque`: the source is
    not Kafka, so there are no ranges, and its ids alone identify a micro-batch. `run_id` is that of
    a batch job's run.
    """

    query_id: str
    batch_id: int
    starts: Ends
    ends: Ends
    is_stateful: bool = False
    is_cut: bool = False
    is_opaque: bool = False
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which part of a micro-batch is left to run.

    - `is_done`: nothing is left.
    - `starts`: where each partition is read from.
    - `floors`: the starts that are above Spark's. Rows below them are committed already and must be
      dropped.
    """

    is_done: bool
    starts: Ends
    floors: Ends


def unknown(position: Position, step: PlannedBatch) -> list[TopicPartition]:
    """Return the partitions for which `decide` needs the earliest offset."""
    return sorted(tp for tp in step.starts if tp not in position.ends)


def decide(pipeline: str, position: Position, step: PlannedBatch, earliest: Ends) -> Decision:
    """Compare Spark's ranges with the ledger, and return what is left to run. Raise
    PromiseBrokenError if they contradict each other.

    `earliest` has the earliest offsets of the partitions that `unknown` returned.
    """
    if _is_that(position, step):
        return Decision(is_done=True, starts=step.ends, floors={})
    if step.is_opaque:
        _require_next(pipeline, position, step)
        return Decision(is_done=False, starts={}, floors={})
    for tp in sorted(step.ends):
        _require_adjacent(pipeline, position, step, tp, earliest)
    known = position.ends
    # Where Spark has no start for a new partition, it reads from 0, or fails (failOnDataLoss).
    planned = {tp: step.starts.get(tp, 0) for tp in step.ends}
    starts = {tp: max(start, known.get(tp, start)) for tp, start in planned.items()}
    if step.is_stateful:
        _require_whole(pipeline, position, step, starts)
        return Decision(is_done=False, starts=starts, floors={})
    is_done = all(known.get(tp, -1) == end for tp, end in step.ends.items())
    floors = {tp: start for tp, start in starts.items() if start > planned[tp]}
    return Decision(is_done, starts, floors)


def _is_that(position: Position, step: PlannedBatch) -> bool:
    """Return whether the ledger's last committed micro-batch is exactly this one.

    Spark repeats a micro-batch if it died between EndTxn and its own commit log. The batch id alone
    does not prove that. A checkpoint that fell back (an older copy, a file lost in a power failure)
    plans the same number with another range.
    """
    return _has_part(position, step) and all(
        position.ends.get(tp) == end for tp, end in step.ends.items()
    )


def _has_part(position: Position, step: PlannedBatch) -> bool:
    """Return whether the ledger's last transaction committed this micro-batch, or a part of it."""
    return (position.query_id, position.batch_id) == (step.query_id, step.batch_id)


def require_not_behind(pipeline: str, position: Position, step: PlannedBatch) -> None:
    """Raise PromiseBrokenError if Spark would plan a micro-batch anew that is in the ledger.

    Its plan was written before its transaction, so the checkpoint is an older copy, or a power
    failure took its newest files. The number alone would make the new micro-batch count as the
    committed one, or repeat what a micro-batch without records has emitted from its state."""
    if step.query_id != position.query_id or step.batch_id > position.batch_id:
        return
    raise PromiseBrokenError(
        "checkpoint_behind",
        f"{pipeline}: the checkpoint ends before micro-batch {step.batch_id} of query "
        f"{step.query_id}, but the ledger has micro-batch {position.batch_id}: running it would "
        "lose or repeat rows",
        hint="was the checkpoint restored from a copy, or did a power failure remove files? "
        "Restore the newest one: only it knows the offsets of a DataFrame's source. Another "
        f"pipeline goes on with `eos recover {pipeline} --set-checkpoint-aside --yes` and a start "
        "with --accept-state-loss, and every total restarts from zero",
        pipeline=pipeline,
    )


def _require_next(pipeline: str, position: Position, step: PlannedBatch) -> None:
    """Raise PromiseBrokenError unless this micro-batch follows the ledger's last one, or is the
    first of all."""
    wanted = (position.query_id, position.batch_id + 1)
    if (step.query_id, step.batch_id) == (wanted if position.query_id else (step.query_id, 0)):
        return
    known = f"micro-batch {position.batch_id} of query {position.query_id}"
    last = known if position.query_id else "no micro-batch"
    raise PromiseBrokenError(
        "batch_out_of_order",
        f"{pipeline}: Spark runs micro-batch {step.batch_id} of query {step.query_id}, but the "
        f"ledger ends with {last}: running it would lose or repeat rows",
        hint="was the checkpoint restored from a copy, or did another program use it? Restore the "
        "newest one. Only the checkpoint knows the offsets of a DataFrame's source",
        pipeline=pipeline,
    )


def _require_adjacent(
    pipeline: str, position: Position, step: PlannedBatch, tp: TopicPartition, earliest: Ends
) -> None:
    end, start, known = step.ends[tp], step.starts.get(tp), position.ends.get(tp)
    where = f"{pipeline}: micro-batch {step.batch_id} reads {tp.topic}-{tp.partition}"
    state_loss = _STATE_LOSS if step.is_stateful else ""
    if known is None:
        if start is not None and start != earliest[tp]:
            first = earliest[tp]
            raise PromiseBrokenError(
                "unknown",
                f"{where} from offset {start} on. This partition is not in the ledger yet, and "
                f"its first record is at {first}: {_between(start, first)}",
                hint="did another pipeline write the checkpoint, or did retention delete the "
                f"beginning of a new partition? `eos recover {pipeline} --accept-start` accepts "
                "this beginning",
                **_values(pipeline, tp, None, start),
            )
    elif start is None and not (_has_part(position, step) and known <= end):
        raise PromiseBrokenError(
            "beyond",
            f"{where} from its beginning, as a new partition, but {known} is next according to "
            "the ledger",
            hint="was the checkpoint restored from a copy, or the topic recreated? `eos recover "
            f"{pipeline} --set-checkpoint-aside` resumes at the ledger's ends{state_loss}",
            **_values(pipeline, tp, known, 0),
        )
    elif start is not None and known < start:
        n_skipped = start - known
        raise PromiseBrokenError(
            "hole",
            f"{where} from offset {start} on, but {known} is next according to the ledger: "
            f"running it would skip {n_skipped} offsets",
            hint="if plain Spark used this checkpoint and wrote these records, `eos recover "
            f"{pipeline} --adopt-checkpoint` resumes where it ends. If the ledger was restored "
            f"from a copy, or nothing processed them, `eos recover {pipeline} "
            f"--set-checkpoint-aside` resumes at the ledger's ends{state_loss}",
            **_values(pipeline, tp, known, start),
        )
    elif known > end:
        n_repeated = end - (start or 0)
        raise PromiseBrokenError(
            "beyond",
            f"{where} up to offset {end}, but {known} is next according to the ledger: running "
            f"it would repeat {n_repeated} offsets",
            hint="was the checkpoint restored from a copy, or did another deployment run since? "
            f"`eos recover {pipeline} --set-checkpoint-aside` resumes at the ledger's "
            f"ends{state_loss}",
            **_values(pipeline, tp, known, end),
        )


def _require_whole(pipeline: str, position: Position, step: PlannedBatch, starts: Ends) -> None:
    starting_later = {tp: start for tp, start in starts.items() if start > step.starts.get(tp, 0)}
    if not starting_later:
        return
    tp, known = min(starting_later.items())
    start = step.starts.get(tp, 0)
    raise PromiseBrokenError(
        "inside_state",
        f"{pipeline}: micro-batch {step.batch_id} reads {tp.topic}-{tp.partition} from offset "
        f"{start} to {step.ends[tp]}, but the ledger has it up to {known}, committed by "
        f"micro-batch {position.batch_id} of query {position.query_id}: the checkpoint's state "
        "belongs to another offset",
        hint="was the checkpoint restored from a copy? Restore the newest one. Otherwise run "
        f"`eos recover {pipeline} --set-checkpoint-aside --yes`, and start with "
        "--accept-state-loss: every total restarts from zero",
        **_values(pipeline, tp, known, start),
    )


def _between(start: int, earliest: int) -> str:
    if start > earliest:
        return f"{start - earliest} offsets before it would never be read"
    return f"{earliest - start} offsets of it are gone"


def _values(
    pipeline: str, tp: TopicPartition, known: int | None, planned: int
) -> Mapping[str, str | int | None]:
    return {
        "pipeline": pipeline,
        "topic": tp.topic,
        "partition": tp.partition,
        "ledger": known,
        "planned": planned,
    }


def require_same_topics(pipeline: str, position: Position, topic_ids: Mapping[str, str]) -> None:
    """Raise PromiseBrokenError if a source topic was recreated: its id differs from the ledger's,
    and the ledger's offsets belong to other records."""
    for name, now in sorted(topic_ids.items()):
        known = position.topic_ids.get(name, now)
        if known != now:
            raise PromiseBrokenError(
                "recreated",
                f"{pipeline}: the source topic {name!r} was recreated: its id is {now}, but "
                f"{known} in the ledger. The ledger's offsets no longer apply",
                hint=f"`eos recover {pipeline} --forget-topic {name}` reads the new topic from its "
                "beginning; records of the old one after the ledger's end are gone",
                pipeline=pipeline,
                topic=name,
            )
