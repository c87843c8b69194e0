"""Cancel an attempt's Spark job after the broker has ended its transaction.

Spark waits for a task without a limit, so a Python worker that hangs would block the pipeline
forever. The broker has a limit: it aborts a transaction that is open longer than its timeout, and
fences its epoch. After that the job can't commit anything. So the job is cancelled, which kills its
workers, and the micro-batch is retried (rule "everything is bounded").

An attempt that has not produced anything has no open transaction, so none can time out. A slow
transform may run as long as it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eos.deadline import Deadline
from eos.errors import AttemptFailedError
from eos.kafka.api import DescribedTransaction, Identity
from eos.kafka.client import KafkaClient

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

_TICK_S_MAX = 30.0
_LOOK_MS_MAX = 10_000


def collected(
    job: DataFrame, client: KafkaClient, transactional_id: str, identity: Identity, timeout_ms: int
) -> Sequence[Any]:
    """Run the job and return its rows.

    If the broker ends the attempt's transaction (timeout or takeover), cancel the job and raise
    AttemptFailedError.
    """
    context = job.sparkSession.sparkContext
    watch = _Watch(context, client, transactional_id, identity, timeout_ms)
    context.addJobTag(watch.tag)
    try:
        with watch:
            return job.collect()
    except Exception as error:
        if watch.state is None:
            raise
        phase, epoch = watch.state.phase, watch.state.identity.epoch
        seconds = timeout_ms / 1000
        raise AttemptFailedError(
            "transaction_timed_out",
            f"the broker ended the transaction ({phase}, epoch {epoch}) after more than "
            f"{seconds:.0f} s, while its tasks were still running: they were cancelled",
            hint="a worker hangs, or a micro-batch needs more time: raise `transaction.timeout`",
        ) from error
    finally:
        context.removeJobTag(watch.tag)


class _Watch:
    """A thread that cancels a Spark job once the broker has ended the attempt's transaction.

    It sends its first request after `timeout_ms`: before that, no transaction can have timed out.
    """

    def __init__(
        self,
        context: SparkContext,
        client: KafkaClient,
        transactional_id: str,
        identity: Identity,
        timeout_ms: int,
    ) -> None:
        self.tag = f"eos-attempt-{identity.producer_id}-{identity.epoch}"
        # The transaction's state, once the broker reported another producer id or epoch than this
        # attempt's.
        self.state: DescribedTransaction | None = None
        self._context = context
        self._client = client
        self._transactional_id = transactional_id
        self._identity = identity
        self._timeout_s = timeout_ms / 1000
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End the thread and wait for it. Its requests have deadlines, so the wait is bounded."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = self._timeout_s
        while not self._end.wait(pause_s):
            pause_s = min(_TICK_S_MAX, self._timeout_s / 4)
            # If the broker or the JVM does not respond, try both again: without this thread, Spark
            # could wait forever.
            with suppress(Exception):
                state = self._client.transaction_state(
                    self._transactional_id, Deadline.after_ms(_LOOK_MS_MAX)
                )
                # The broker bumps the epoch when it ends a transaction, and so does a newer owner.
                if state.identity != self._identity:
                    self.state = state
                    self._context.cancelJobsWithTag(self.tag)
                    return
