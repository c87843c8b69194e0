"""How do the observers of a profile get the events of a run?

They can't affect a run. Only a wrong name or wrong arguments in the profile end it, before anything
began (`load_observers`).
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from eos.errors import EosError, Recovery, UsageError, about, exit_code
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.observer_thread import ObserverThread

if TYPE_CHECKING:
    from eos.config.model import Profile
    from eos.config.monitoring import Observer

_CLOSE_S = 5.0  # for all observers together
_HINT = "correct `observers` in the profile: docs/monitoring.md"


@dataclass(frozen=True, slots=True)
class LoadedObserver:
    """An imported observer whose arguments fit; `make` creates it."""

    name: str
    make: Callable[[], Callable[[events.Event], object]]


def load_observers(profile: Profile) -> Sequence[LoadedObserver]:
    """Import the profile's observers. Raise UsageError if a name or arguments are wrong.

    To be called after the pipeline's steps are loaded: the project's folder is then on the path.
    """
    return [_load(each) for each in profile.observers]


def _load(observer: Observer) -> LoadedObserver:
    module_name, _, name = observer.python.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            "observer_import_failed",
            f"observer `{observer.python}` can't be imported: {type(error).__name__}: {error}",
            hint=f"run `python -c 'import {module_name}'` in the folder that contains pipelines/; "
            "a module is in that folder, or is installed",
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(
            "observer_missing",
            f"observer `{observer.python}`: module `{module_name}` has no class or function "
            f"`{name}`",
            hint=_HINT,
        )
    try:
        inspect.signature(found).bind(**observer.arguments)
    except (TypeError, ValueError) as error:
        raise UsageError(
            "observer_arguments_invalid",
            f"observer `{observer.python}` does not accept its arguments: {error}",
            hint=f"{_HINT}; `with` has them by name",
        ) from error
    return LoadedObserver(observer.python, partial(_made, found, dict(observer.arguments)))


def _made(call: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[events.Event], object]:
    observer: Callable[[events.Event], object] = call(**arguments)
    if not callable(observer):
        raise TypeError(f"expected a function of an event, got {type(observer).__name__}")
    return observer


@contextmanager
def observing(pipeline: str, bus: Bus, observers: Sequence[LoadedObserver]) -> Iterator[None]:
    """Hand the events of this context to the observers, the error that ends it included.

    At the end the bus is closed. Observers have a few seconds for the events that they still have
    to handle.
    """

    def warn(text: str) -> None:
        bus.emit(events.Warned(text))

    threads = [ObserverThread(each.name, each.make, warn) for each in observers]
    for each in threads:
        bus.subscribe(each)
    try:
        yield
    except Exception as error:
        bus.emit(_run_failed(pipeline, error))
        raise
    finally:
        bus.close()
        ends_at = time.monotonic() + _CLOSE_S
        for each in threads:
            each.close(max(0.0, ends_at - time.monotonic()))


def _run_failed(pipeline: str, error: Exception) -> events.RunFailed:
    if not isinstance(error, EosError):
        kind, text = type(error).__name__, str(error)[:500]
        restart = Recovery.RESTART.value  # as `run.main` reports it
        return events.RunFailed(pipeline, "unexpected_error", kind, text, "", restart)
    named = about(pipeline, error)
    return events.RunFailed(
        pipeline, named.code, named.kind, named.message, named.hint, exit_code(named)
    )
