"""The program of `project.WarmDriver`, for spark-submit: one session, many runs, one at a time.

Each run is `eos.run.main.main` in the main thread, as in a process of its own. What a process of
its own would have for itself is put back after each: environment, folder, signal handlers, import
path, the user's modules, settings of the session, and both output streams.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eos.local.processes import die_with_parent
from eos.run import main as main_module
from eos.spark.installed_pyspark import prefer_installed
from eos.spark.session import open_session

# This folder is no place for a user's modules, and its names are no modules of Python's.
sys.path.pop(0)

prefer_installed()  # as `main` does, which here comes after the imports below

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(address: str) -> None:
    die_with_parent()
    main_module.die_with_parent = lambda: None  # once a process; each call starts a thread
    sys.dont_write_bytecode = True  # a module rewritten within a second would not be seen
    spark = open_session("warm")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw", encoding="ascii") as stream:
            _say(stream, {"pid": os.getpid()})
            for line in stream:
                request = json.loads(line)
                code = run(spark, request)
                left = [query.name for query in spark.streams.active]
                for query in spark.streams.active:
                    query.stop()
                _say(stream, {"returncode": code, "left": left})


def run(spark: Any, request: Mapping[str, Any]) -> int:
    """The exit code that a process of its own would have had."""
    with _output_to(request["log"]):
        try:
            with (
                _environment(request["environment"]),
                _settings(spark, request["settings"]),
                _signals(),
                _imports(Path(request["folder"])),
            ):
                return main_module.main(request["words"])
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        except BaseException:  # noqa: BLE001 - as the interpreter does for a process of its own
            traceback.print_exc()
            return 1


@contextmanager
def _output_to(log: str) -> Iterator[None]:
    """Both streams, for whoever writes to the descriptors: cold, spark-submit joins them too."""
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with Path(log).open("ab") as target:
        for number, _ in kept:
            os.dup2(target.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in kept:
            os.dup2(before, number)
            os.close(before)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _settings(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """What the profile would have given to spark-submit, as far as a session can change it."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        assert spark.conf.isModifiable(key), f"{key} needs a process of its own"
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


@contextmanager
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _imports(folder: Path) -> Iterator[None]:
    """The user's modules are imported by each run: they may have changed, or be another's."""
    path, here = list(sys.path), Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name.partition(".")[0] == "pipelines" or Path(file).is_relative_to(folder):
                del sys.modules[name]


def _say(stream: Any, what: object) -> None:
    stream.write(json.dumps(what) + "\n")
    stream.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
