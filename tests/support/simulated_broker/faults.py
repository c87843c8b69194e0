"""Faults for the simulated broker: armed for the n-th request of a kind, recorded when hit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.kafka.api import Api


class Strike(Enum):
    LOSE_REQUEST = "the request never arrives"
    DELAY_REQUEST = "no answer; the request arrives when `deliver_late` says so"
    LOSE_ANSWER = "carried out, but no answer comes"
    REPEAT_LATER = "carried out and answered, and carried out again at `deliver_late`"
    ANSWER = "not carried out: answered with `code`"
    CARRY_OUT_AND_ANSWER = "carried out, yet answered with `code`"


@dataclass(frozen=True, slots=True)
class Fault:
    api: Api
    strike: Strike
    nth: int = 1  # counted from the moment it is armed
    code: int = 0
    times: int = 1  # strikes this many requests in a row, from the n-th on


class Faults:
    """The armed faults. A test asserts that `hit` holds what it armed."""

    def __init__(self) -> None:
        self.hit: list[Fault] = []
        self._armed: list[tuple[Fault, list[int]]] = []  # with the number of requests seen since

    def arm(self, fault: Fault) -> None:
        self._armed.append((fault, [0]))

    def disarm(self) -> None:
        self._armed.clear()

    @property
    def is_armed(self) -> bool:
        return bool(self._armed)

    def strike(self, api: Api) -> Fault | None:
        """What happens to this request: the first armed fault that is due."""
        due = None
        for fault, seen in list(self._armed):
            if fault.api is not api:
                continue
            seen[0] += 1
            if due is None and fault.nth <= seen[0] < fault.nth + fault.times:
                due = fault
                self.hit.append(fault)
            if seen[0] >= fault.nth + fault.times - 1:
                self._armed.remove((fault, seen))
        return due
