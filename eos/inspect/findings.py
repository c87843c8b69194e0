"""What stops a startup, by case, and which commands fix it?"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eos.errors import EosError
from eos.inspect.snapshot import SourceBounds
from eos.ledger.record import Ends, LedgerRecord


class Way(NamedTuple):
    words: str
    does: str


_TOPICS = ("gone", "recreated", "left_out")  # one command forgets all such topics
_TABLES = ("table_behind", "table_history", "table_replaced")
_ACCEPT = Way("--accept-start", "resumes without the deleted records, and lists them in the ledger")
_ASIDE = Way("--set-checkpoint-aside", "resumes at the ledger's ends, with a fresh checkpoint")
_ADOPT = Way("--adopt-checkpoint", "resumes where the checkpoint ends")
_FROM_GROUP = Way("--from-group", "resumes at the group's offsets")
_SKIP = Way("--skip-foreign", "resumes from the newest record that the pipeline wrote")
_WAYS: Mapping[str, tuple[Way, ...]] = {
    "beyond": (_ASIDE,),
    "hole": (
        Way(
            "--set-checkpoint-aside",
            "resumes at the ledger's ends, if nothing was written after them",
        ),
        Way(
            "--adopt-checkpoint",
            "resumes where the checkpoint ends, if plain Spark wrote the records in between",
        ),
    ),
    "unknown": (
        Way("--accept-start", "reads the new partitions from where the checkpoint begins"),
        Way("--set-checkpoint-aside", "reads them from their beginning"),
    ),
    "checkpoint_unreadable": (_ASIDE,),
    "new_truncated": (_ASIDE,),
    "ledger_empty": (_ADOPT,),
    "ledger_lost": (_FROM_GROUP,),
    "group_ahead": (
        Way("--from-group", "resumes at the group's offsets: records in between are not read"),
        Way("--restore-group", "resets the group's offsets to the ledger's ends"),
    ),
    "truncated": (_ACCEPT,),
    "ledger_foreign": (
        _SKIP,
        Way("--accept-ledger", "resumes from the newest record, if replication copied the ledger"),
    ),
    "ledger_unknown": (_SKIP,),
}


@dataclass(frozen=True, slots=True)
class StartupFinding:
    """One cause that stops a startup. `code` is the exit code of that startup."""

    case: str
    messages: tuple[str, ...]
    hint: str
    code: int
    ways: tuple[Way, ...]

    def as_json(self, command: Command) -> dict[str, Any]:
        return {
            "case": self.case,
            "messages": list(self.messages),
            "hint": self.hint,
            "exit_code": self.code,
            "ways": [{"command": command(way.words), "does": way.does} for way in self.ways],
        }


Command = Callable[[str], str]


def command_of(pipeline: str, options: Sequence[str]) -> Command:
    """Return a function that completes this `eos recover` command line with more options."""
    lead = shlex.join(["eos", "recover", pipeline, *options])
    return lambda words: f"{lead} {words}".rstrip()


def findings(
    errors: Sequence[EosError], history: Sequence[LedgerRecord], limits: SourceBounds | None
) -> list[StartupFinding]:
    """Return the errors as findings, one for each case, in the startup's order."""
    by_case: dict[str, list[EosError]] = {}
    for error in errors:
        by_case.setdefault(error.code, []).append(error)
    return [
        StartupFinding(
            case,
            tuple(error.message for error in of_case),
            of_case[0].hint,
            of_case[0].recovery.value,
            _ways(case, errors, history, limits),
        )
        for case, of_case in by_case.items()
    ]


def _ways(
    case: str,
    errors: Sequence[EosError],
    history: Sequence[LedgerRecord],
    limits: SourceBounds | None,
) -> tuple[Way, ...]:
    if case in _TOPICS:
        topics = [str(error.fields["topic"]) for error in errors if error.code in _TOPICS]
        words = " ".join(f"--forget-topic {topic}" for topic in topics)
        does = "removes these topics from the ledger; a recreated one is read from its beginning"
        return (Way(words, does),)
    if case == "source_lost":
        fits = next(
            (each for each in history if limits and _fits(each.position.ends, limits)), None
        )
        to = f"{fits.offset}" if fits else "OFFSET"
        does = "rewinds to before the loss: later output is written a second time"
        return (Way(f"--rewind-to {to}", does),)
    if case in _TABLES:
        tables = {str(each.fields["table"]) for each in errors if each.code == case}
        does = "resumes with the table as it is, or creates it: missing rows are not written"
        return tuple(Way(f"--accept-table {table}", does) for table in sorted(tables))
    return tuple(way for way in _WAYS.get(case, ()) if history or way is not _SKIP)


def _fits(ends: Ends, limits: SourceBounds) -> bool:
    return all(tp in limits.latest for tp in ends) and not limits.outside(ends)
