"""What a profile names as a secret stands nowhere else: neither in it, nor in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eos.config.problems import Location, Places, Problem, refuse
from eos.secret import identity, variable_of

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

# The values of a profile that are handed on as a reference, and read where they are used.
SECRETS: Sequence[Location] = (("kafka", "security", "password"), ("registry", "password"))


def require_hidden(pipeline: PipelineFile, profile: ProfileFile) -> None:
    """Before anything of the pipeline file is printed, or handed to Spark."""
    found = list(shown(pipeline.places, profile)) if pipeline.is_loaded else []
    if found:
        raise refuse(f"the pipeline file {pipeline.path}", found)


def shown(places: Places, profile: ProfileFile) -> Iterator[Problem]:
    """Yield each place where a file shows a variable, or another file, that the profile names as a
    secret, by whatever path."""
    named = _named(profile)
    for name, locations in places.variables.items():
        owner = named.get(identity(name)) if named else None
        for location in locations if owner else ():
            if location not in SECRETS:
                told = f"expected no `${{{name}}}` here: it is `{owner}` of profile "
                told += f"{profile.name!r}, and this value shows in plans, logs, errors and "
                told += "Spark's own pages. Who the pipeline is stands there alone"
                yield places.problem(location, told)


def _named(profile: ProfileFile) -> Mapping[str, str]:
    """Return the profile's secrets by identity, each with its place. The files of `key` and
    `certificate` count: both may hold the private key."""
    security, registry = profile.kafka.security, profile.registry
    given = (
        security.password if security is not None else None,
        registry.password if registry is not None else None,
    )
    found = {
        identity(variable_of(text)): ".".join(map(str, place))
        for place, text in zip(SECRETS, given, strict=True)
        if text
    }
    for name in ("key", "certificate"):
        path = getattr(security, name, None)
        if path:
            found[identity(f"file:{path}")] = f"kafka.security.{name}"
    return found
