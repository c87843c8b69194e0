"""Every error a pipeline can stop with: what happened, whether to start again, what to do.

Each class has a stable `code`, a `recovery` that decides the exit code, the fields that a log
line needs, a message for people and a `hint` with the way out. All of them pickle: they cross
from executors to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar


class Recovery(Enum):
    """What is right to do next. The value is the exit code if the error ends the process."""

    USAGE = 2  # the caller's words are wrong: correct them
    FENCED = 3  # another copy owns the pipeline: do not start again
    STOP = 4  # the promise can't be kept by itself: a person must act
    RESTART = 5  # broken surroundings: a supervisor may start again
    REDO = 6  # this attempt is lost, its micro-batch is not: never leaves the process


class EosError(Exception):
    """The base. `fields` are the values that the message names, for logs and tests."""

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
    """The same error with the pipeline's name, where it was raised by what does not know it."""
    if error.message.startswith((f"{pipeline}: ", f"{pipeline} ")):
        return error
    hint = error.hint.replace("PIPELINE", pipeline)
    return type(error)(
        f"{pipeline}: {error.message}", hint=hint, **{**error.fields, "pipeline": pipeline}
    )


@contextmanager
def naming(pipeline: str) -> Iterator[None]:
    """Around a run: add the pipeline's name to each error that lacks it."""
    try:
        yield
    except EosError as error:
        named = about(pipeline, error)
        if named is error:
            raise
        raise named from error


# Stand in for who we are to Kafka, where that is not known.
THE_PRINCIPAL, PRINCIPAL = "The principal", "User:PRINCIPAL"


def as_principal(principal: str, error: EosError) -> EosError:
    """The same error with who lacks a right, where it was raised by what does not know it."""
    if PRINCIPAL not in error.hint:
        return error
    message = error.message.replace(THE_PRINCIPAL, principal)
    return type(error)(message, hint=error.hint.replace(PRINCIPAL, principal), **error.fields)


class UsageError(EosError):
    """A pipeline file, profile or command line that can't be meant."""

    code = "usage"
    recovery = Recovery.USAGE


class FencedError(EosError):
    """A newer owner holds the transactional id. The older one must not come back by itself."""

    code = "fenced"
    recovery = Recovery.FENCED


class PromiseBrokenError(EosError):
    """Going on would lose or repeat records: ledger, checkpoint and topics disagree."""

    code = "promise_broken"
    recovery = Recovery.STOP


class UnsupportedBrokerError(EosError):
    """The broker lacks something that the transaction protocol needs."""

    code = "unsupported_broker"
    recovery = Recovery.STOP


class RecordRefusedError(EosError):
    """A record that can't be written as it is: too large, or of the wrong shape."""

    code = "record_refused"
    recovery = Recovery.STOP


class KafkaRefusedError(EosError):
    """The broker answered with an error that neither a retry nor a new attempt mends."""

    code = "kafka_refused"
    recovery = Recovery.STOP


class TransformError(EosError):
    """A user's function could not be loaded, or failed."""

    code = "transform"
    recovery = Recovery.STOP


class UnavailableError(EosError):
    """Nothing answered in time, or a part of the surroundings died. Starting again may help."""

    code = "unavailable"
    recovery = Recovery.RESTART


class AttemptFailedError(EosError):
    """This attempt can't commit any more: abort it and redo the micro-batch under a new epoch."""

    code = "attempt_failed"
    recovery = Recovery.REDO


class DedupRetryError(AttemptFailedError):
    """Records were written before they were validated, and dedup leaves some of them out. The
    retry validates first: part of normal work, and no failure."""

    code = "dedup_retry"


class NoAnswerError(EosError):
    """A request left (or may have left) and no answer came: its outcome is unknown."""

    code = "no_answer"
    recovery = Recovery.REDO
