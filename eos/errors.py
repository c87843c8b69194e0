"""Which errors can stop a pipeline, whether a restart helps, and what to do.

Each class has a stable `code` and a `recovery`, which decides the exit code. Each error has the
fields for a log line, a message and a `hint` with the fix. All of them pickle, because they travel
from executors to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar


class Recovery(Enum):
    """The right reaction to an error. The value is the exit code if the error ends the process."""

    USAGE = 2  # wrong input: correct it
    FENCED = 3  # another instance owns the pipeline: do not restart
    STOP = 4  # exactly-once can't be guaranteed: needs an operator
    RESTART = 5  # the environment failed: a supervisor may restart
    REDO = 6  # the attempt failed: retry the micro-batch in this process


class EosError(Exception):
    """The base of all errors. `fields` are the values in the message, for logs and tests."""

    code: ClassVar[str] = "internal"
    recovery: ClassVar[Recovery] = Recovery.STOP

    def __init__(self, message: str, *, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.fields)

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


def _rebuild(kind: type[EosError], message: str, hint: str, fields: dict[str, Any]) -> EosError:
    return kind(message, hint=hint, **fields)


def about(pipeline: str, error: EosError) -> EosError:
    """Return the error with the pipeline's name in it, if the code that raised it did not know the
    name."""
    if error.message.startswith((f"{pipeline}: ", f"{pipeline} ")):
        return error
    hint = error.hint.replace("PIPELINE", pipeline)
    return type(error)(
        f"{pipeline}: {error.message}", hint=hint, **{**error.fields, "pipeline": pipeline}
    )


@contextmanager
def naming(pipeline: str) -> Iterator[None]:
    """Add the pipeline's name to each error from this context that lacks it."""
    try:
        yield
    except EosError as error:
        named = about(pipeline, error)
        if named is error:
            raise
        raise named from error


# Placeholders for our principal at Kafka, where it is not known.
THE_PRINCIPAL, PRINCIPAL = "The principal", "User:PRINCIPAL"


def as_principal(principal: str, error: EosError) -> EosError:
    """Return the error with our principal in it, if the code that raised it did not know the
    principal."""
    if PRINCIPAL not in error.hint:
        return error
    message = error.message.replace(THE_PRINCIPAL, principal)
    return type(error)(message, hint=error.hint.replace(PRINCIPAL, principal), **error.fields)


class UsageError(EosError):
    """A pipeline file, profile or command line that is invalid."""

    code = "usage"
    recovery = Recovery.USAGE


class FencedError(EosError):
    """The loss of the transactional id to a newer owner. This instance must not restart on its
    own."""

    code = "fenced"
    recovery = Recovery.FENCED


class PromiseBrokenError(EosError):
    """A contradiction between ledger, checkpoint and topics: continuing would lose or repeat
    records."""

    code = "promise_broken"
    recovery = Recovery.STOP


class UnsupportedBrokerError(EosError):
    """A broker without a feature that the transaction protocol needs."""

    code = "unsupported_broker"
    recovery = Recovery.STOP


class RecordRefusedError(EosError):
    """A record that can't be written unchanged: too large, or of the wrong shape."""

    code = "record_refused"
    recovery = Recovery.STOP


class KafkaRefusedError(EosError):
    """An error from the broker that neither a retry nor a new attempt can fix."""

    code = "kafka_refused"
    recovery = Recovery.STOP


class TransformError(EosError):
    """A user's function that could not be loaded, or failed."""

    code = "transform"
    recovery = Recovery.STOP


class UnavailableError(EosError):
    """No response in time, or a failed part of the environment. A restart may help."""

    code = "unavailable"
    recovery = Recovery.RESTART


class AttemptFailedError(EosError):
    """A failed attempt: abort it and retry the micro-batch under a new epoch."""

    code = "attempt_failed"
    recovery = Recovery.REDO


class DedupRetryError(AttemptFailedError):
    """A request to retry an attempt that wrote records before dedup had validated them.

    Dedup drops some of those records, so the retry validates first. This is normal operation, and
    no failure.
    """

    code = "dedup_retry"


class NoAnswerError(EosError):
    """A request without a response: it was or may have been sent, so its outcome is unknown."""

    code = "no_answer"
    recovery = Recovery.REDO
