"""The check that no file shows a secret: a profile's secret may be used only at its own key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eos.config.problems import Location, Places, Problem, refuse
from eos.secret import identity, variable_of

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

# Secrets of a profile. Their reference (`${VAR}`) is passed on, and resolved only where it is used.
SECRETS: Sequence[Location] = (
    ("kafka", "security", "password"),
    ("kafka", "security", "oauth", "client_secret"),
    ("registry", "password"),
    ("registry", "token"),
    ("registry", "oauth", "client_secret"),
)
# Another cluster has the keys of `kafka`.
_CLUSTERS = "clusters"
# Files that contain a secret. `certificate` may have the private key, too.
_FILES: Sequence[Location] = (
    ("kafka", "security", "key"),
    ("kafka", "security", "certificate"),
    ("kafka", "security", "oauth", "token_file"),
    ("registry", "key"),
    ("registry", "certificate"),
    ("registry", "oauth", "token_file"),
)


def is_secret(location: Location) -> bool:
    """Return whether the profile's key at this location has a secret."""
    if location[:1] == (_CLUSTERS,):
        location = ("kafka", *location[2:])
    return location in SECRETS


def require_hidden(pipeline: PipelineFile, profile: ProfileFile) -> None:
    """Raise UsageError if the pipeline file shows a secret of the profile.

    Call this before any part of the pipeline file is printed or handed to Spark.
    """
    found = list(exposed_secrets(pipeline.places, profile)) if pipeline.is_loaded else []
    if found:
        raise refuse(f"the pipeline file {pipeline.path}", found)


def exposed_secrets(places: Places, profile: ProfileFile) -> Iterator[Problem]:
    """Yield a problem for each value in a file that would show a secret of the profile.

    A secret is a variable or file that the profile uses for a password or private key. A file is
    recognized under every path that leads to it, such as a link.
    """
    keys = _secret_keys(profile)
    for name, locations in places.variables.items():
        owner = keys.get(identity(name)) if keys else None
        for location in locations if owner else ():
            if not is_secret(location):
                text = f"expected no `${{{name}}}` here: it is the secret `{owner}` of profile "
                text += f"{profile.name!r}, and this value is printed in plans, logs, errors and "
                text += f"Spark's web UI. Use it only at `{owner}`"
                yield places.problem(location, text)


def secret_variables(profile: ProfileFile) -> frozenset[str]:
    """Return the environment variables that the profile uses where only a secret may be."""
    found = (_value(profile, place) for place in _of_all_clusters(profile, SECRETS))
    return frozenset(variable_of(reference) for reference in found if reference)


def _secret_keys(profile: ProfileFile) -> Mapping[str, str]:
    """Return the profile's secrets: the identity of each variable or file, and its key there."""
    found = {}
    for place in _of_all_clusters(profile, SECRETS):
        reference = _value(profile, place)
        if reference:
            found[identity(variable_of(reference))] = ".".join(map(str, place))
    for place in _of_all_clusters(profile, _FILES):
        path = _value(profile, place)
        if path:
            found[identity(f"file:{path}")] = ".".join(map(str, place))
    return found


def _of_all_clusters(profile: ProfileFile, places: Sequence[Location]) -> Iterator[Location]:
    """Yield the locations, and those of `kafka` for each of the profile's other clusters."""
    for place in places:
        yield place
        if place[0] == "kafka":
            yield from ((_CLUSTERS, name, *place[1:]) for name in profile.clusters)


def _value(profile: ProfileFile, place: Location) -> str | None:
    """Return the text at a location of the profile, or None."""
    found: Any = profile
    for part in place:
        is_named = isinstance(found, Mapping)
        found = found.get(part) if is_named else getattr(found, str(part), None)
    return found if isinstance(found, str) else None
