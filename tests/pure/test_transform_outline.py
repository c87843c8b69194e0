"""A user's module is looked at without the libraries that take long, if that says the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In a process of its own: what was imported by others would be there.
PROGRAM = """
import sys
from pathlib import Path
from typing import NamedTuple
from eos.errors import TransformError
from eos.transform.functions import load

class Step(NamedTuple):
    python: str
    arguments: dict
    sql: None = None
    name: None = None
    pandas: None = None
    arrow: None = None
    returns: None = None
    tables: tuple = ()

folder = Path(sys.argv[1])
for name, rate in [line.split() for line in sys.stdin]:
    for looks in (True, False):
        try:
            (found,) = load(
                [Step(f"{name}:made", {"rate": rate})], folder, folder / "a", is_preview=looks
            )
            is_left_out, told = name not in sys.modules, f"{found.arguments}"
        except TransformError as error:
            is_left_out, told = False, error.message
        sys.modules.pop(name, None)
        print(f"{name} {is_left_out}: {told}")
"""
FUNCTION = "def made(frame: DataFrame | None, rate: str) -> DataFrame:\n    return frame\n"
PLAIN = "import json\nfrom decimal import *\nfrom pyspark.sql import DataFrame\n"
MODULES = {
    "plain": PLAIN,
    "by_name": f"{PLAIN}import pyspark.sql.functions as f\nfrom pyspark.sql.functions import col\n",
    "as_a_type": f"{PLAIN}from pyspark.sql import types as t\nALSO = t.StructType\n",
}
NEEDING = {
    "made_at_once": f"{PLAIN}from pyspark.sql import types as t\nALSO = t.StructType([])\n",
    "swallowed": f"{PLAIN}try:\n    DataFrame()\nexcept Exception:\n    pass\n",
    "derived": f"{PLAIN}class Mine(DataFrame):\n    pass\n",
    "of_a_version": f"{PLAIN}import pyspark\nif pyspark.__version__ == '1':\n    made = None\n",
    "of_all": "from pyspark.sql import *\n",
    "misspelt": f"{PLAIN}from pyspark.sql import functons\n",
    "elsewhere": "from pyspark.sql import DataFrame, col\n",  # it is one of its functions
    "endless": f"{PLAIN}import numpy as np\nALL = list(np.typecodes['All'])\n",
    "asked": f"{PLAIN}import numpy as np\nIS = 'q' in np.typecodes['All']\n",
    "once": f"{PLAIN}from pyspark.sql import functions as f\n"
    "with open(__file__ + '.ran', 'a') as it:\n    it.write('x')\n@f.udf('int')\ndef one(): ...\n",
    "nowhere": f"{PLAIN}import pyspark.nowhere\n",
    "others": f"{PLAIN}import plain\n",
    "broken": f"{PLAIN}1 / 0\n",
    "unfinished": f"{PLAIN}(\n",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """Of each module, as it was looked at and then imported: was something left out, the words."""
    folder = tmp_path_factory.mktemp("outline")
    (folder / "a").mkdir()
    for name, text in (MODULES | NEEDING).items():
        (folder / "a" / f"{name}.py").write_text(text + FUNCTION)
    (folder / "a" / "odd.py").write_text(PLAIN + FUNCTION.replace("rate: str", "rate: int"))
    asked = [*MODULES, *NEEDING, "odd"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        input="\n".join(f"{name} x" for name in asked),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.splitlines():
        head, _, words = line.partition(": ")
        name, is_left_out = head.split()
        found.setdefault(name, []).append((is_left_out, words))
    assert list(found) == asked
    assert (folder / "a" / "once.py.ran").read_text() == "xx"  # once each time
    return found


def test_what_only_annotates_is_left_out(told: dict[str, list[tuple[str, str]]]) -> None:
    for name in MODULES:
        assert told[name] == [("True", "{'rate': 'x'}"), ("False", "{'rate': 'x'}")], name


def test_whoever_needs_a_library_is_imported_and_told_the_same(
    told: dict[str, list[tuple[str, str]]],
) -> None:
    for name in NEEDING:
        looked, imported = told[name]
        assert looked == imported, name
    assert "functons" in told["misspelt"][0][1]


def test_arguments_are_compared_with_annotations(told: dict[str, list[tuple[str, str]]]) -> None:
    (_, looked), (_, imported) = told["odd"]
    assert looked == imported
    assert "does not accept 'x' as `rate`" in looked
