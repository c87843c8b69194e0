"""A pipeline as people name it: the path of its file, its folder, or its name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from eos.config.load import load_pipeline
from eos.config.model import PipelineFile
from eos.errors import UsageError
from eos.launch.options import project_of


def find_pipeline(word: str) -> PipelineFile:
    """A name is looked up in the project that the working folder belongs to, so that the command
    in a hint, which knows only the name, can be copied as it is."""
    path = Path(word)
    if path.exists() or "/" in word or path.suffix in {".yaml", ".yml"}:
        return load_pipeline(path)
    project = project_of(Path.cwd() / "pipeline.yaml")
    # What it calls itself is its name; its folder may have another, even that of a third one.
    files = sorted((project / "pipelines").glob("*/pipeline.yaml"))
    for file in sorted(files, key=lambda file: file.parent.name != word):
        with suppress(UsageError):  # somebody else's file may be broken
            pipeline = load_pipeline(file)
            if pipeline.name == word:
                return pipeline
    folder = project / "pipelines" / word
    if folder.is_dir():
        return load_pipeline(folder)
    raise UsageError(
        f"there is no pipeline {word!r} in {project / 'pipelines'}, and no such file",
        hint="give the path of its pipeline.yaml, or its name from inside its project",
    )
