"""`eos fetch`: download and build what runs need, so that later runs need no network."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eos.launch.java_wheel import ensure_java
from eos.launch.native_library import ensure_native
from eos.launch.spark import find_spark
from eos.launch.spark_version import minor_of
from eos.local.jars import BROKER_VERSION, jar_folder, of_broker, of_delta, of_spark, paths_of
from eos.local.java import Java
from eos.native.library import Status, is_disabled
from eos.offline import allow_downloads


def run(options: argparse.Namespace) -> int:
    allow_downloads()
    versions = options.broker or [BROKER_VERSION]
    sets = [name for each in versions if each != "none" for name in of_broker(each)]
    sparks = options.spark or [minor_of(find_spark().version)]
    sets += [name for each in sparks for name in (*of_spark(each), *of_delta(each))]
    java = ensure_java()  # before the jars, since Java runs the client that downloads them
    jars = len(set(paths_of(*sets)))
    native = ensure_native(is_forced=True)
    if options.json:
        document: dict[str, Any] = {
            "java": {"version": java.version, "home": str(java.home), "origin": java.origin},
            "spark": {"versions": sparks},
            "jars": {"count": jars, "folder": str(jar_folder())},
            "native": {"path": native.path or None, "problem": native.problem or None},
        }
        print(json.dumps(document))
    else:
        print("\n".join(lines(java, sparks, jars, jar_folder(), native)))
    return 0 if native.library is not None or is_disabled() else 1


def lines(
    java: Java, sparks: Sequence[str], jars: int, folder: Path, native: Status
) -> Iterator[str]:
    yield f"java    {java.version} ({java.origin}: {java.home})"
    yield f"jars    {jars} for Spark {', '.join(sparks)}, in {folder}"
    if native.library is not None:
        yield f"native  {native.origin}: {native.path}"
    else:
        yield f"native  none, so runs are slower: {native.problem}"
