"""The `eos recover` commands that fix errors of the next startup."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from eos.errors import EosError
from eos.inspect.snapshot import SourceBounds
from eos.ledger.record import Ends, LedgerRecord


class Remedy(NamedTuple):
    words: str
    effect: str


_TOPICS = ("gone", "recreated", "left_out")  # one command forgets all such topics
_TABLES = ("table_behind", "table_history", "table_replaced")
_ACCEPT = Remedy(
    "--accept-start", "resumes without the deleted records, and lists them in the ledger"
)
_ASIDE = Remedy("--set-checkpoint-aside", "resumes at the ledger's ends, with a fresh checkpoint")
_ADOPT = Remedy("--adopt-checkpoint", "resumes where the checkpoint ends")
_FROM_GROUP = Remedy("--from-group", "resumes at the group's offsets")
_SKIP = Remedy("--skip-foreign", "resumes from the newest record that the pipeline wrote")
_FORGET = Remedy(
    "--forget-producers", "resumes without dedup's states: records sent earlier are not recognized"
)
_REMEDIES: Mapping[str, tuple[Remedy, ...]] = {
    "beyond": (_ASIDE,),
    "hole": (
        Remedy(
            "--set-checkpoint-aside",
            "resumes at the ledger's ends, if nothing was written after them",
        ),
        Remedy(
            "--adopt-checkpoint",
            "resumes where the checkpoint ends, if plain Spark wrote the records in between",
        ),
    ),
    "unknown": (
        Remedy("--accept-start", "reads the new partitions from where the checkpoint begins"),
        Remedy("--set-checkpoint-aside", "reads the new partitions from their beginning"),
    ),
    "checkpoint_unreadable": (_ASIDE,),
    "new_truncated": (_ASIDE,),
    "ledger_empty": (_ADOPT,),
    "ledger_lost": (_FROM_GROUP,),
    "group_ahead": (
        Remedy("--from-group", "resumes at the group's offsets: records in between are not read"),
        Remedy("--restore-group", "resets the group's offsets to the ledger's ends"),
    ),
    "truncated": (_ACCEPT,),
    "producers_changed": (_FORGET,),
    "producers_lost": (_FORGET,),
    "ledger_foreign": (
        _SKIP,
        Remedy(
            "--accept-ledger", "resumes from the newest record, if replication copied the ledger"
        ),
    ),
    "ledger_unknown": (_SKIP,),
    "table_restore_unfinished": (
        Remedy("--rewind-to OFFSET --restore-tables", "completes the interrupted rewind"),
    ),
}


class StartupStop(NamedTuple):
    """The errors with one code that would stop a startup, and the commands that fix them."""

    errors: Sequence[EosError]
    remedies: tuple[Remedy, ...]

    @property
    def code(self) -> str:
        return self.errors[0].code

    @property
    def hint(self) -> str:
        return self.errors[0].hint

    def as_json(self, command: Command) -> dict[str, Any]:
        return {
            "case": self.code,
            "messages": [error.message for error in self.errors],
            "hint": self.hint,
            "exit_code": self.errors[0].recovery.value,
            "ways": [
                {"command": command(each.words), "does": each.effect} for each in self.remedies
            ],
        }


Command = Callable[[str], str]


def command_of(pipeline: str, options: Sequence[str]) -> Command:
    """Return a function that completes this `eos recover` command line with more options."""
    lead = shlex.join(["eos", "recover", pipeline, *options])
    return lambda words: f"{lead} {words}".rstrip()


def startup_stops(
    errors: Sequence[EosError], history: Sequence[LedgerRecord], limits: SourceBounds | None
) -> list[StartupStop]:
    """Group the errors by code, in the startup's order, and add the commands that fix them.

    `history` has ledger records, newest first, for a rewind. `limits` are the source's bounds."""
    by_code: dict[str, list[EosError]] = {}
    for error in errors:
        by_code.setdefault(error.code, []).append(error)
    return [
        StartupStop(of_code, _remedies(code, errors, history, limits))
        for code, of_code in by_code.items()
    ]


def _remedies(
    code: str,
    errors: Sequence[EosError],
    history: Sequence[LedgerRecord],
    limits: SourceBounds | None,
) -> tuple[Remedy, ...]:
    if code in _TOPICS:
        topics = [str(error.fields["topic"]) for error in errors if error.code in _TOPICS]
        words = " ".join(f"--forget-topic {topic}" for topic in topics)
        action = "removes these topics from the ledger; a recreated one is read from its beginning"
        return (Remedy(words, action),)
    if code == "source_lost":
        fits = next(
            (each for each in history if limits and _fits(each.position.ends, limits)), None
        )
        to = f"{fits.offset}" if fits else "OFFSET"
        action = "rewinds to before the loss: later output is written a second time"
        return (Remedy(f"--rewind-to {to}", action),)
    if code in _TABLES:
        tables = {str(each.fields["table"]) for each in errors if each.code == code}
        action = "resumes with the table as it is, or creates it: missing rows are not written"
        return tuple(Remedy(f"--accept-table {table}", action) for table in sorted(tables))
    return tuple(each for each in _REMEDIES.get(code, ()) if history or each is not _SKIP)


def _fits(ends: Ends, limits: SourceBounds) -> bool:
    return all(tp in limits.latest for tp in ends) and not limits.outside(ends)
