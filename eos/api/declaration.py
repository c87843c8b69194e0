"""Validate the arguments of a job by the models of pipeline files and profiles.

A job has the same keys as a pipeline file, and the same checks. A problem is reported by the key's
path, such as `sink.kafka[1].topic`, since there is no file with lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from eos.config.load import load_profile
from eos.config.model import PipelineFile, ProfileFile
from eos.config.problems import Location, Place, Places, Problem, explain, refuse
from eos.location import project_root

_Model = TypeVar("_Model", bound=BaseModel)
_TEXT_MAX = 60


def pipeline_of(declared: Mapping[str, Any]) -> PipelineFile:
    """Return the pipeline that the keys declare. Raise UsageError with all problems.

    Paths of schema files and tables are relative to the working folder.
    """
    places = _Arguments.of(declared)
    pipeline = _validated(PipelineFile, declared, places)
    here = Path.cwd()
    return pipeline.found_at(here / f"{pipeline.name}.yaml", here, places)


def profile_of(
    chosen: str | Path | Mapping[str, Any] | None, own: Mapping[str, Any]
) -> ProfileFile:
    """Return the profile of a job: a file's by name or path, or the keys themselves.

    `own` has the keys that the job sets itself, such as `kafka`. They replace those of the profile.
    """
    here = Path.cwd()
    if chosen is None or isinstance(chosen, Mapping):
        declared = {**(chosen or {}), **own}
        return _validated(ProfileFile, declared, _Arguments.of(declared)).with_root(here)
    loaded = load_profile(str(chosen), project_root(here))
    replaced = _validated(ProfileFile, own, _Arguments.of(own)).with_root(here)
    changes = {name: getattr(replaced, name) for name in replaced.model_fields_set & own.keys()}
    found = loaded.model_copy(update=changes).with_name(loaded.name)
    return found.with_root(here) if "state" in own else found


def _validated(kind: type[_Model], declared: Mapping[str, Any], places: Places) -> _Model:
    try:
        return kind.model_validate(dict(declared), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [each for at in explain(kind, error, places).values() for each in at]
        raise refuse(f"the job {declared.get('name', '')!r}", problems) from error


class _Arguments(Places):
    """The values of a job. A problem has the path of its key, and no line."""

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> _Arguments:
        return cls("", {}, dict(_values(declared, ())))

    def problem(self, location: Location, message: str, *, at_key: bool = False) -> Problem:
        parts = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in location]
        found = super().problem(location, message, at_key=at_key)
        return found._replace(path="".join(parts).removeprefix("."), line=0, column=0)


def _values(value: Any, location: Location) -> Iterator[tuple[Location, Place]]:
    if isinstance(value, Mapping):
        yield location, Place(0, 0, "a mapping")
        for key, each in value.items():
            yield from _values(each, (*location, str(key)))
    elif isinstance(value, list | tuple):
        yield location, Place(0, 0, "a list")
        for number, each in enumerate(value):
            yield from _values(each, (*location, number))
    else:
        yield location, Place(0, 0, f"`{str(value)[:_TEXT_MAX]}`")
