"""The check that no file shows a secret: a profile's secret may be used only at its own key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eos.config.problems import Location, Places, Problem, refuse
from eos.secret import identity, variable_of

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

# Secrets of a profile. Their reference (`${VAR}`) is passed on, and resolved only where it is used.
SECRETS: Sequence[Location] = (("kafka", "security", "password"), ("registry", "password"))


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
            if location not in SECRETS:
                text = f"expected no `${{{name}}}` here: it is the secret `{owner}` of profile "
                text += f"{profile.name!r}, and this value is printed in plans, logs, errors and "
                text += f"Spark's web UI. Use it only at `{owner}`"
                yield places.problem(location, text)


def _secret_keys(profile: ProfileFile) -> Mapping[str, str]:
    """Return the profile's secrets: the identity of each variable or file, and its key there.

    The files of `key` and `certificate` are included, because both may hold the private key.
    """
    security, registry = profile.kafka.security, profile.registry
    declared = (
        security.password if security is not None else None,
        registry.password if registry is not None else None,
    )
    found = {
        identity(variable_of(text)): ".".join(map(str, place))
        for place, text in zip(SECRETS, declared, strict=True)
        if text
    }
    for name in ("key", "certificate"):
        path = getattr(security, name, None)
        if path:
            found[identity(f"file:{path}")] = f"kafka.security.{name}"
    return found
