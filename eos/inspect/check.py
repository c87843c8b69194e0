"""What did a check of the environment find, and how is it fixed?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from eos.errors import EosError

Level = Literal["ok", "note", "finding"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    A note may be intended. A finding will stop a run, or may break a guarantee.
    """

    what: str
    level: Level
    says: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "level": self.level,
            "says": self.says,
            "remedy": self.remedy or None,
        }


def ok(what: str, says: str) -> Check:
    return Check(what, "ok", says)


def note(what: str, says: str, remedy: str = "") -> Check:
    return Check(what, "note", says, remedy)


def finding(what: str, says: str, remedy: str) -> Check:
    return Check(what, "finding", says, remedy)


def asked(what: str, question: Callable[[], Check | Iterable[Check]]) -> Iterator[Check]:
    """Yield the checks of `question`; if it raises, yield the error as a finding.

    So one failed check does not hide the others. The error is the one that a run would stop with.
    """
    try:
        found = question()
        yield from [found] if isinstance(found, Check) else list(found)
    except EosError as error:
        yield finding(
            what, error.message, error.hint or "`eos lint FILE` shows the problem's place"
        )
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        says = f"{where}{error.strerror or error}"
        yield finding(what, says, "give this user the right to read and write there")


def lines(checks: Iterable[Check]) -> Iterator[str]:
    marks = {"ok": "ok", "note": "note", "finding": "FINDING"}
    for each in checks:
        yield f"{marks[each.level]:<8} {each.what:<12} {each.says}"
        if each.remedy:
            yield f"{'':<8} {'':<12} -> {each.remedy}"
