"""The valid parts of a pipeline file that has problems in other parts.

`eos lint` checks the valid parts further (steps, rules, sinks) and reports everything at once, so
that the user fixes the file once. A part with a problem is not checked further, because other
findings would only follow from that problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from eos.config.base import Strict
from eos.config.cross_checks import findings
from eos.config.delta_sink import DeltaSink
from eos.config.model import PipelineFile
from eos.config.problems import Location, Places, Problem
from eos.config.rejected_records import Rule
from eos.config.sink import KafkaSink
from eos.config.source import Source
from eos.config.transform import Step

Part = TypeVar("Part", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parts:
    """Valid parts of a pipeline file, each with its location."""

    folder: Path
    project_root: Path
    places: Places
    source: Source | None
    rules: Mapping[Location, Rule]
    steps: Mapping[Location, Step]
    sinks: Mapping[Location, KafkaSink]
    tables: Mapping[Location, DeltaSink]
    names: frozenset[str]  # tables and steps that a query may read besides `input`, valid or not


@dataclass(frozen=True, slots=True)
class FileValues:
    """A file's values as read. `invalid` has the locations with problems and those around them."""

    value: Any
    places: Places
    invalid: frozenset[Location]

    def parts(self, folder: Path, project_root: Path) -> Parts:
        return Parts(
            folder,
            project_root,
            self.places,
            self._each(Source, "source").get(("source",)),
            self._each(Rule, "expect"),
            self._each(Step, "transform"),
            self._each(KafkaSink, "sink", "kafka"),
            self._each(DeltaSink, "sink", "delta"),
            frozenset(self._names()),
        )

    def together(self) -> Iterator[Problem]:
        """Yield a problem for each conflict between valid parts, such as source and sink."""
        if not isinstance(self.value, dict):
            return
        right = {
            name: field
            for name, field in PipelineFile.model_fields.items()
            if self._is_right((field.alias or name,))
        }
        fields: dict[str, Any] = {name: (field.annotation, field) for name, field in right.items()}
        model = create_model("Right", __base__=Strict, **fields)
        parts = model.model_validate({n: each for n, each in self.value.items() if n in right})
        pipeline = PipelineFile.model_construct(**{name: getattr(parts, name) for name in right})
        for location, text in findings(pipeline, right):
            yield self.places.problem(location, text)

    def _names(self) -> Iterator[str]:
        declared = self.value if isinstance(self.value, dict) else {}
        tables, steps = declared.get("tables"), declared.get("transform")
        yield from tables if isinstance(tables, dict) else ()
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict) and step.get("name"):
                yield str(step["name"])

    def _is_right(self, location: Location) -> bool:
        return location not in self.invalid

    def _each(self, kind: type[Part], *location: str) -> Mapping[Location, Part]:
        """Return the valid models of type `kind` at a location, by their own location.

        The file has one mapping there, or a list of mappings. Invalid entries are left out.
        """
        value = self.value
        for key in location:
            value = value.get(key) if isinstance(value, dict) else None
        found: dict[Location, Any] = {location: value} if isinstance(value, dict) else {}
        if isinstance(value, list) and kind is not Source:
            found = {(*location, number): each for number, each in enumerate(value)}
        return {
            place: kind.model_validate(each, by_alias=True, by_name=False)
            for place, each in found.items()
            if self._is_right(place)
        }
