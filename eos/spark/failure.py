"""The cause of a failed call to Spark, as the chain of its Java exceptions.

An exception's text may quote records, so no retry and no exit code depends on it. These depend on
the classes and on Spark's error conditions (such as `CAST_INVALID_INPUT`), which a record can't
influence. A text decides at most which hint is shown, and which of two errors with the same exit
code. Texts are cut to a maximum length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_LINKS_MAX = 32  # a chain of causes may contain a cycle
_TEXT_MAX = 256 << 10
_MESSAGE_MAX = 16 << 10
_THROWABLE = "org.apache.spark.SparkThrowable"
_RAISED = "USER_RAISED_EXCEPTION"


@dataclass(frozen=True, slots=True)
class Link:
    """One Java exception of the chain.

    `kind` is its class. `condition` and `state` (SQLSTATE) are empty unless Spark raised it.
    """

    kind: str
    message: str = ""
    condition: str = ""
    state: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The class name without its package and its outer class."""
        return self.kind.rpartition(".")[2].rpartition("$")[2]

    @property
    def line(self) -> str:
        """The message's first line."""
        return self.message.strip().partition("\n")[0].strip()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call to Spark: its text, and the chain of Java exceptions, outermost first.

    The text is for messages. It may contain a task's error, as a signed mark (`eos/seal.py`).
    """

    text: str
    links: tuple[Link, ...] = ()
    is_of_python: bool = False  # no Java exception: the driver's own work failed, or the JVM died

    @classmethod
    def of(cls, error: BaseException | None) -> Failure:
        """Return the failure that an exception of PySpark describes, even if the JVM has died."""
        links = tuple(_links(error))
        of_python = (link.parameters.get("traceback", "") for link in links)
        is_of_python = error is not None and not links
        kind = f"{type(error).__name__}: " if is_of_python else ""  # the text may lack the cause
        text = "\n".join([f"{kind}{_text(error)}", *filter(None, of_python)])
        return cls(text, links, is_of_python)

    @property
    def raised(self) -> tuple[str, ...]:
        """The texts that SQL's `raise_error` was called with."""
        found = (each for each in self.links if each.condition == _RAISED)
        return tuple(each.parameters.get("errorMessage", "") for each in found)

    def first(self, is_it: Callable[[Link], bool]) -> Link | None:
        """Return the outermost exception for which `is_it` is true."""
        return next((link for link in self.links if is_it(link)), None)

    def condition(self, *beginnings: str) -> Link | None:
        """Return the outermost exception whose condition begins with one of these texts."""
        return self.first(lambda link: link.condition.startswith(beginnings))


def _text(error: BaseException | None) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - Py4J asks the JVM for the text, and that may fail
        return type(error).__name__
    if len(text) > _TEXT_MAX:
        return f"{text[: _TEXT_MAX // 2]}\n{text[-_TEXT_MAX // 2 :]}"
    return text


def _links(error: BaseException | None) -> Iterator[Link]:
    java = _java_of(error)
    for _ in range(_LINKS_MAX):
        if java is None:
            return
        try:
            found = _link(java)
            java = java.getCause()
        except Exception:  # noqa: BLE001 - Py4J's errors, and the network's
            return
        yield found


def _java_of(error: BaseException | None) -> Any:
    """Return the Java exception in a Py4J or PySpark error, or in one of its Python causes.

    Return None if there is none."""
    for _ in range(_LINKS_MAX):
        if error is None:
            return None
        for name in ("java_exception", "_origin"):
            found = getattr(error, name, None)
            if found is not None:
                return found
        # An error that Delta's Python package converts has lost its `_origin`. PySpark raises it
        # `from None`, so Py4J's error is its context.
        error = error.__context__ if hasattr(error, "_origin") else error.__cause__
    return None


def _link(java: Any) -> Link:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    kind, message = str(java.getClass().getName()), java.getMessage()
    message = str(message or "")[:_MESSAGE_MAX]
    if not is_instance_of(SparkContext._gateway, java, _THROWABLE):  # noqa: SLF001 - no public way
        return Link(kind, message)
    parameters = {str(k): str(v)[-_TEXT_MAX:] for k, v in dict(java.getMessageParameters()).items()}
    condition, state = java.getCondition(), java.getSqlState()
    return Link(kind, message, str(condition or ""), str(state or ""), parameters)
