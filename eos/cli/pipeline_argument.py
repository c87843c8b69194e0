"""Verbs about a pipeline, which people name by the path of its file, its folder, or its name."""

from __future__ import annotations

import argparse
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from eos.config.literals import duration_ms
from eos.config.load import load_pipeline, name_of
from eos.config.model import PipelineFile, Profile
from eos.errors import UsageError
from eos.launch.options import project_of


def parser_of(
    verb: str, about: str, codes: str, *, is_needed: bool = True
) -> argparse.ArgumentParser:
    """With what all of these verbs have: the pipeline, where it runs, and --json."""
    parser = argparse.ArgumentParser(
        prog=f"eos {verb}",
        description=about,
        epilog=codes,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    count = None if is_needed else "?"
    named = "its file, its folder, or its name"
    parser.add_argument("pipeline", metavar="PIPELINE", nargs=count, help=named)
    parser.add_argument("--profile", metavar="NAME|PATH", help="where it runs: conf/NAME.yaml")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def find_pipeline(word: str) -> PipelineFile:
    return load_pipeline(file_of(word))


def file_of(word: str) -> Path:
    """A name is looked up in the project that the working folder belongs to, so that the command
    in a hint, which knows only the name, can be copied as it is."""
    path = Path(word)
    is_there = path.is_file() or (path / "pipeline.yaml").is_file()
    if is_there or "/" in word or path.suffix in {".yaml", ".yml", ".md", ".markdown"}:
        return path
    project = project_of(Path.cwd() / "pipeline.yaml")
    # What it calls itself is its name; its folder may have another, even that of a third one.
    files = sorted((project / "pipelines").glob("*/pipeline.yaml"))
    for file in sorted(files, key=lambda file: file.parent.name != word):
        with suppress(UsageError):  # somebody else's file may be no text
            if name_of(file)[0] == word:
                return _shown(file)
    folder = project / "pipelines" / word
    if folder.is_dir():
        return _shown(folder)
    raise UsageError(
        f"there is no pipeline {word!r} in {project / 'pipelines'}, and no such file",
        hint="give the path of its pipeline.yaml, or its name from inside its project",
    )


def _shown(path: Path) -> Path:
    """As it is seen from here, if it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def audit_location(profile: Profile) -> Path:
    from eos.audit.updater import location_of  # here: it brings Delta along, and verbs wait for it

    found = location_of(profile)
    if found is None:
        raise UsageError(
            f"profile {profile.name!r}: the state root {profile.state.root} is no folder of this "
            "machine, so that there is no audit table",
            hint="`eos recover` shows the ledger's last records",
        )
    return found


def since(text: str | None) -> datetime | None:
    """What `--since` says: a time, or so long ago."""
    if text is None:
        return None
    now = datetime.now(timezone.utc)
    try:
        return now - timedelta(milliseconds=int(duration_ms(text)))
    except (ValueError, TypeError):
        pass
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(
            f"--since {text!r} is no time",
            hint='as `--since "2 hours"`, or `--since 2026-11-21T10:00:00Z`',
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)
