"""The errors that can stop a pipeline: whether a restart helps, and what to do.

Each class has a `recovery`, which decides the exit code, and a `kind`, which the audit table
stores. Each error has a `code`, which names its cause: `docs/messages.md` lists all codes. It also
has a message, a `hint` with the fix, and fields for a log line. All errors can be pickled, because
they travel from executors to the driver.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar, TypeVar

from eos import log_lines
from eos.printable import printable

_INACCESSIBLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP}
)


class Recovery(Enum):
    """The right reaction to an error. The value is the exit code if the error ends the process."""

    USAGE = 2  # wrong input: correct it
    FENCED = 3  # another instance owns the pipeline: do not restart
    STOP = 4  # exactly-once can't be guaranteed: needs an operator
    RESTART = 5  # the environment failed: a supervisor may restart
    REDO = 6  # the attempt failed: retry the micro-batch in this process


class EosError(Exception):
    """The base class of all errors. `fields` are the values in the message, for logs and tests."""

    kind: ClassVar[str] = "internal"
    recovery: ClassVar[Recovery] = Recovery.STOP

    def __init__(self, code: str, message: str, *, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.message, self.hint, self.fields)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}" + (f"\n  hint: {self.hint}" if self.hint else "")


_Error = TypeVar("_Error", bound=EosError)


def _rebuild(
    kind: type[_Error], code: str, message: str, hint: str, fields: dict[str, Any]
) -> _Error:
    return kind(code, message, hint=hint, **fields)


def reword(
    error: _Error, *, message: str | None = None, hint: str | None = None, **fields: Any
) -> _Error:
    """Return a copy of the error with another message or hint, and with more fields."""
    message = error.message if message is None else message
    hint = error.hint if hint is None else hint
    return _rebuild(type(error), error.code, message, hint, {**error.fields, **fields})


def report(error: EosError) -> int:
    """Write the error to stderr, and return the process's exit code."""
    code = exit_code(error)
    if log_lines.chosen().is_console:
        sys.stderr.write(f"eos: {printable(str(error))}\n")
        return code
    named = ("pipeline", "topic", "partition", "api")
    fields = {name: error.fields[name] for name in named if name in error.fields}
    fields |= {"code": error.code, "kind": error.kind, "hint": error.hint, "exit_code": code}
    log_lines.write(error.message, "error", **fields)
    return code


def exit_code(error: EosError) -> int:
    """Return the exit code of a process that the error ends.

    After a micro-batch whose retries all failed, the exit code is 5: nothing is lost, the cause may
    pass, and a supervisor may start the run again.
    """
    recovery = Recovery.RESTART if error.recovery is Recovery.REDO else error.recovery
    return int(recovery.value)


def about(pipeline: str, error: EosError) -> EosError:
    """Return the error with the pipeline's name before its message, unless the message has it
    already. In the hint, the name replaces PIPELINE."""
    if error.message.startswith((f"{pipeline}: ", f"{pipeline} ")):
        return error
    hint = error.hint.replace("PIPELINE", pipeline)
    return reword(error, message=f"{pipeline}: {error.message}", hint=hint, pipeline=pipeline)


@contextmanager
def naming(pipeline: str) -> Iterator[None]:
    """Add the pipeline's name to each error that is raised in this context without it."""
    try:
        yield
    except EosError as error:
        named = about(pipeline, error)
        if named is error:
            raise
        raise named from error


# Placeholders for the principal (Kafka user) of this process, in errors whose raiser does not know
# it.
THE_PRINCIPAL, PRINCIPAL = "The principal", "User:PRINCIPAL"


def with_principal(principal: str, error: EosError) -> EosError:
    """Return the error with `principal` (the Kafka user of this process) in place of the
    placeholders."""
    if PRINCIPAL not in error.hint:
        return error
    message = error.message.replace(THE_PRINCIPAL, principal)
    return reword(error, message=message, hint=error.hint.replace(PRINCIPAL, principal))


class UsageError(EosError):
    """A pipeline file, profile or command line that is invalid."""

    kind = "usage"
    recovery = Recovery.USAGE


class FencedError(EosError):
    """A newer owner has taken the transactional id. This instance must not restart on its own."""

    kind = "fenced"
    recovery = Recovery.FENCED


class PromiseBrokenError(EosError):
    """A contradiction between ledger, checkpoint and topics: continuing would lose or repeat
    records."""

    kind = "promise_broken"
    recovery = Recovery.STOP


class UnsupportedBrokerError(EosError):
    """A broker without a feature that the transaction protocol needs."""

    kind = "unsupported_broker"
    recovery = Recovery.STOP


class RecordRefusedError(EosError):
    """A record that can't be written unchanged: too large, or of the wrong shape."""

    kind = "record_refused"
    recovery = Recovery.STOP


class KafkaRefusedError(EosError):
    """A broker's rejection that neither a retry nor a new attempt can fix, such as a missing
    permission."""

    kind = "kafka_refused"
    recovery = Recovery.STOP


class TransformError(EosError):
    """A step, rule or expression of the pipeline that can't be loaded, is not supported, or
    failed."""

    kind = "transform"
    recovery = Recovery.STOP


class UnavailableError(EosError):
    """A missing response, or a failed part of the environment. A restart may help."""

    kind = "unavailable"
    recovery = Recovery.RESTART


def unexpected(error: BaseException) -> UnavailableError:
    """Return the error to report for an exception that is none of this module's."""
    kind, lines = type(error).__name__, str(error).strip().splitlines()
    reason = lines[0][:500] if lines else "no message"
    return UnavailableError(
        "unexpected_error",
        f"{kind}: {reason}",
        hint="set EOS_TRACE=1 for the stack trace; Spark's log may have more details",
    )


def of_command(error: Exception) -> EosError:
    """Return the error to report for an exception of a command: a file that this user can't use, or
    anything else."""
    if isinstance(error, OSError) and error.errno in _INACCESSIBLE and error.filename:
        return UsageError(
            "file_inaccessible",
            f"{error.filename} can't be used: {error.strerror}",
            hint="correct the path, or the permissions of the file and of the folders above it "
            "(`namei -l PATH` lists them)",
        )
    return unexpected(error)


class AttemptFailedError(EosError):
    """A failed attempt: abort it and retry the micro-batch under a new epoch."""

    kind = "attempt_failed"
    recovery = Recovery.REDO


class DedupRetryError(AttemptFailedError):
    """The request to retry an attempt whose records were written before dedup validated them.

    Dedup drops some of these records, so the retry validates first. This is normal operation, and
    no failure.
    """

    kind = "dedup_retry"


class NoAnswerError(EosError):
    """A Kafka request without a response. It may have been carried out, so its outcome is
    unknown."""

    kind = "no_answer"
    recovery = Recovery.REDO
