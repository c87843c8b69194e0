"""A row of the catalogue of faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`message`: the code of the error that a user sees, or what the log reports; empty if nothing
    is reported. `tests`: pytest's ids. Without tests, `reaction` has the reason."""

    name: str
    injected: str
    reaction: str
    message: str
    tests: tuple[str, ...]


def kafka(*tests: str) -> tuple[str, ...]:
    """Ids of tests in tests/kafka, without the folder and the word `test_` of the file."""
    return tuple(f"tests/kafka/test_{test}" for test in tests)


def pipeline(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/pipeline/test_{test}" for test in tests)


def pure(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/pure/test_{test}" for test in tests)


def fuzz(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/fuzz/test_{test}" for test in tests)
