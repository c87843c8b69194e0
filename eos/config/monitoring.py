"""Which keys of a profile choose what gets the events of a run?"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eos.config.base import Strict
from eos.config.transform import Function


class Observer(Strict):
    """Python code that gets the events of each run.

    `python` names a class or a function. Each run calls it once, with the arguments in `with`. It
    returns the observer: an object that is called with each event.
    """

    python: Function
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
