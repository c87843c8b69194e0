"""Does Spark's JVM need its optimizing compiler in a run?

The compiler, C2, pays off in code that runs for each row. If Python tasks process all records, the
JVM only plans and schedules. C2 then takes half of a short run's CPU time, and hardly shortens the
later micro-batches of a long one.

Only Spark can tell whether Python tasks can run a query or parse JSON. So a run leaves a note of
what processed its records, and the next run of the same file goes by it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eos import private_files
from eos.launch.spark import with_java_options
from eos.native import library

if TYPE_CHECKING:
    from eos.config.dedup import Dedup
    from eos.config.model import PipelineFile
    from eos.config.sink import KafkaSink
    from eos.config.transform import Step

WITHOUT_C2 = "-XX:TieredStopAtLevel=1"
# Set for the driver: each pipeline's file for its note, as JSON.
NOTES = "EOS_ROWS_NOTES"
_PYTHON, _JVM = "python", "jvm"  # the content of a note
_DIGEST = 16  # the characters of a pipeline file's digest in the name of its note
_READER = "EOS_READER"  # as in eos.plan.reader, which this package may not import


def chosen(
    environment: Mapping[str, str], pipelines: Sequence[PipelineFile], logs: Path, master: str
) -> dict[str, str]:
    """Return the environment of a run's JVM and driver with the choice of the compiler."""
    notes = notes_of(pipelines, logs)
    texts = {name: str(path) for name, path in notes.items()}
    options = java_options(pipelines, notes, master)
    return {**with_java_options(environment, *options), NOTES: json.dumps(texts)}


def java_options(
    pipelines: Sequence[PipelineFile], notes: Mapping[str, Path], master: str
) -> tuple[str, ...]:
    """Return the option for a JVM that gets no rows of these pipelines; none if it may get some."""
    # Without the native library, Spark's source reads the records. And a cluster's executors, not
    # this JVM, run the tasks.
    is_read_in_jvm = os.environ.get(_READER) == "spark" or library.find().library is None
    if is_read_in_jvm or not master.startswith("local"):
        return ()
    are_in_python = (_was_in_python(notes[each.name], each) for each in pipelines)
    return (WITHOUT_C2,) if all(are_in_python) else ()


def notes_of(pipelines: Sequence[PipelineFile], folder: Path) -> dict[str, Path]:
    """Return the file for the note of each pipeline, which exists if the last run left one.

    A changed pipeline file has another one, and the former is removed."""
    found = {}
    for each in pipelines:
        digest = hashlib.sha256(each.path.read_bytes()).hexdigest()[:_DIGEST]
        found[each.name] = folder / f"{each.name}.{digest}.rows"
        for old in folder.glob(f"{each.name}.{'?' * _DIGEST}.rows"):
            if old != found[each.name]:
                old.unlink(missing_ok=True)
    return found


def _was_in_python(note: Path, file: PipelineFile) -> bool:
    """Return what the last run noted; without a note, what the pipeline file says."""
    try:
        text = note.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = ""
    return text == _PYTHON if text in (_PYTHON, _JVM) else is_surely_in_python(file)


def leave_note(pipeline: str, *, is_in_python: bool) -> None:
    """Note for the next run whether Python tasks processed all records of this one.

    Only a driver that the launcher started does that. An error, as with a full disk, costs time in
    the next run and is no reason to fail this one."""
    notes = json.loads(os.environ.get(NOTES, "{}"))
    if pipeline not in notes:
        return
    path, text = notes[pipeline], _PYTHON if is_in_python else _JVM
    with suppress(OSError), open(path, "w", opener=private_files.opener) as file:
        file.write(text)


def is_surely_in_python(file: PipelineFile) -> bool:
    """Return whether the pipeline file alone shows that Python tasks process all records.

    `spark/python_plan.py` decides it in the run."""
    source = file.source
    reads_bytes = source.dataframe is None and source.key == source.value == "binary"
    has_sql = bool(file.expect or file.tables or file.sink.delta or file.distinct)
    if not reads_bytes or source.reader == "spark" or has_sql:
        return False
    if len(file.transform) > 1 or not all(map(_returns_columns, file.transform)):
        return False
    if not all(map(_writes_columns, file.sink.kafka)):
        return False
    return file.producers is None or _validates_headers(file.producers)


def _returns_columns(step: Step) -> bool:
    """Return whether the step is a function whose rows a task can encode. Not all headers that it
    may return can be."""
    returned = step.returns or ""
    if "headers" in returned.lower():
        return False
    return step.arrow is not None or (step.pandas is not None and "*" not in returned)


def _writes_columns(sink: KafkaSink) -> bool:
    """Return whether the sink writes the rows' own columns."""
    return not any((sink.key, sink.value, sink.headers, sink.where))


def _validates_headers(dedup: Dedup) -> bool:
    """Return whether tasks read the stamps from headers, and keep all rejected records."""
    stamp = dedup.producer
    places = (stamp.id, stamp.epoch, stamp.sequence)
    answers = (dedup.on_gap, dedup.on_late, dedup.on_unstamped)
    is_in_headers = all(place.startswith("header(") for place in places)
    return is_in_headers and dedup.verdict is None and "dead_letter" not in answers
