"""Find out why Spark's query failed."""

from __future__ import annotations

from eos.deadline import Deadline
from eos.errors import EosError, FencedError, PromiseBrokenError, UnavailableError
from eos.micro_batch.java_client_errors import source_refusal
from eos.micro_batch.task_errors import data_loss
from eos.run.query import PipelineQuery
from eos.spark.failure import Failure
from eos.startup.resume_position import require_new_whole
from eos.startup.stateful_pipeline import state_refusal
from eos.transaction.micro_batch import MicroBatches

_TIMEOUT_MS = 120_000


def cause_of(query: PipelineQuery, error: Exception, batches: MicroBatches) -> EosError:
    """Return the error to raise for a query that failed.

    If another instance writes to the same checkpoint, Spark may fail before Kafka rejects a
    request of this run. So the owner of the transactional id is checked first. Then the source
    is compared with the ledger: Spark's message about lost records or topics names neither the
    ledger's offsets nor a remedy.
    """
    name = query.stages.plan.names.pipeline
    if isinstance(query.error, EosError):
        # A missing file of Spark's state fails each retry, and that error has its own remedy.
        return state_refusal(name, Failure.of(query.error.__cause__)) or query.error
    try:
        batches.require_owner()
        query.stages.source.require_unchanged(batches.position)
        deadline = Deadline.after_ms(_TIMEOUT_MS)
        require_new_whole(
            query.stages.plan, query.stages.source, batches.position, query.checkpoint, deadline
        )
    except (FencedError, PromiseBrokenError) as cause:
        return cause
    except EosError:
        pass  # the check failed; the query's own error says more
    ended = query.error or error
    failure = Failure.of(ended)
    lines = [line for line in failure.text.splitlines() if line.strip()]
    reason = lines[0][:500] if lines else type(ended).__name__
    known = data_loss(failure) or source_refusal(failure) or state_refusal(name, failure)
    return (
        known
        or late_worker(name, failure)
        or UnavailableError(
            "query_failed",
            f"{name}: the query failed: {reason}",
            hint="nothing is lost: see Spark's log for the cause, then start again",
        )
    )


def late_worker(name: str, failure: Failure) -> UnavailableError | None:
    """Return the error for a worker of a function with state that Spark gave up waiting for."""
    if all(link.line != "Python worker failed to connect back." for link in failure.links):
        return None
    return UnavailableError(
        "python_worker_late",
        f"{name}: a Python worker did not start within the 10 s that Spark waits for it",
        hint="nothing is lost: the machine was too busy, or memory is short; start again",
    )
