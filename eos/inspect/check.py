"""In which form does `eos doctor` collect and show the results of its checks?"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from eos.errors import EosError

Level = Literal["ok", "note", "finding"]
_RIGHT = "give this user the right to read and write there"
_REMEDIES = {
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EROFS: _RIGHT,
    errno.ENOSPC: "free some disk space",
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of `eos doctor`.

    `level` is "ok" without a problem, "note" for a setting that may be intended, and "finding" for
    a problem that stops a run or may break a guarantee. `remedy` is how to fix the problem.
    `is_unanswered` means that no broker answered, so other requests would wait in vain, too.
    """

    subject: str
    level: Level
    message: str
    remedy: str = ""
    is_unanswered: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.subject,
            "level": self.level,
            "says": self.message,
            "remedy": self.remedy or None,
        }


def ok(subject: str, message: str) -> Check:
    return Check(subject, "ok", message)


def note(subject: str, message: str, remedy: str = "") -> Check:
    return Check(subject, "note", message, remedy)


def failed(subject: str, message: str, remedy: str) -> Check:
    return Check(subject, "finding", message, remedy)


def failed_by(subject: str, error: EosError) -> Check:
    """Return an error as a finding."""
    remedy = error.hint or "`eos lint FILE` shows the problem's place"
    is_unanswered = error.code == "brokers_unreachable"
    return Check(subject, "finding", error.message, remedy, is_unanswered)


def checked(subject: str, question: Callable[[], Check | Iterable[Check]]) -> Iterator[Check]:
    """Call `question` and yield its checks. If it raises an error, yield the error as a finding.

    So an error in one check does not prevent the other checks.
    """
    try:
        found = question()
        yield from [found] if isinstance(found, Check) else list(found)
    except EosError as error:
        yield failed_by(subject, error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        message = f"{place}{error.strerror or error}"
        yield failed(subject, message, _REMEDIES.get(error.errno or 0, ""))


def lines(checks: Iterable[Check]) -> Iterator[str]:
    marks = {"ok": "ok", "note": "note", "finding": "FINDING"}
    for each in checks:
        yield f"{marks[each.level]:<8} {each.subject:<12} {each.message}"
        if each.remedy:
            yield f"{'':<8} {'':<12} -> {each.remedy}"
