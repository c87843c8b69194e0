"""What the documents and pyproject.toml contain: code blocks, requirements, refused features.

A letter stands for a feature in the table of docs/combinations.md: `refusal` builds a pipeline of
several features, and asks the first part of a run for the message that refuses them.

    site               the navigation of the documentation's site, and its pages outside of docs/
    messages           program: writes docs/messages.md from the source
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from eos.config.load import load_pipeline
from eos.config.model import ProfileFile
from eos.delta.sinks import DeltaSinks
from eos.errors import EosError
from eos.faults import CrashPlan
from eos.observe.bus import Bus
from eos.plan.plan import Plan, plan
from eos.spark.dedup_run import dedup_of
from eos.startup.stateful_pipeline import with_state
from eos.transform.functions import load
from eos.transform.plan_check import PlanState

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LANGUAGES = {"", "yaml", "python", "bash", "mermaid"}
_COLUMNS_OF_OTHERS_MAX = 3


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Of all documents: a name, DOCUMENT-NUMBER, and the text."""
    for path in DOCUMENTS:
        found = re.finditer(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(found, 1):
            assert block[1] in LANGUAGES, f"{path}: nobody checks {block[1]}"
            if block[1] == language:
                yield f"{path.name}-{number}", block[2]


def require_shown(block: str, printed: Iterable[str]) -> None:
    """Fail unless the block's lines are among the printed ones, one after another.

    `...` in the block stands for any text, and a line of it for any lines.
    """
    wanted = [each for each in block.splitlines() if not each.startswith("$ ") and each]
    left = [each.rstrip() for each in printed if each]
    position = 0 if wanted[0] == "..." else None
    for shown in wanted:
        if shown == "...":
            position = None
            continue
        pattern = re.compile(".*".join(map(re.escape, shown.rstrip().split("..."))))
        among = range(len(left)) if position is None else range(position, position + 1)
        found = next((at for at in among if at < len(left) and pattern.fullmatch(left[at])), None)
        assert found is not None, "\n".join([f"not printed: {shown}", "printed:", *left])
        left, position = left[found + 1 :], 0


def project_requirements(extra: str = "") -> list[str]:
    """The requirements of `spark-eos` or `spark-eos[extra]`."""
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else ())]


def closure(requirements: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions that pip would install for these, as this environment has them."""
    found, wanted = dict[str, importlib.metadata.Distribution](), list(requirements)
    while wanted:
        match = re.match(r"[A-Za-z0-9._-]+", wanted.pop())
        assert match
        try:
            distribution = importlib.metadata.distribution(match.group())
        except importlib.metadata.PackageNotFoundError:
            continue  # its marker excludes this Python or platform
        if distribution.name not in found:
            found[distribution.name] = distribution
            wanted += [each for each in distribution.requires or () if "extra ==" not in each]
    return found


def link_requirements(requirements: Iterable[str], place: Path) -> None:
    """Make a site-packages folder that has these requirements and nothing else."""
    for distribution in closure(requirements).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            target = place / top
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(top))))


def _tables() -> Iterator[list[str]]:
    """Yield the cells of each line of a table in docs/combinations.md."""
    for line in (ROOT / "docs" / "combinations.md").read_text().splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def matrix() -> dict[tuple[str, str], str]:
    """Return the cell of each pair of features, by their letters: `+`, or a refusal's number."""
    found = {}
    for line in _tables():
        letter = re.match(r"([A-Z]) ", line[0])
        if letter is not None and len(line) > _COLUMNS_OF_OTHERS_MAX:
            found |= {(letter[1], chr(ord("A") + at)): cell for at, cell in enumerate(line[1:])}
    return found


def refusals() -> dict[str, str]:
    """Return the quoted words of each refusal on that page, by its number."""
    return {line[0]: line[1].strip('"') for line in _tables() if line[0].isdigit()}


Part = Mapping[str, Any]
BASE: Part = {
    "version": 1,
    "name": "p",
    "source": {"kafka": {"topic": "a"}, "value": {"json": "id BIGINT, ts TIMESTAMP"}},
    "sink": {"kafka": {"topic": "out", "key": "id", "value": "json"}},
}
_STAMP = {"id": "header(i)", "epoch": "header(e)", "sequence": "header(s)"}
_DLQ = {"dead_letter": "dlq"}
_GROUPS = """
SELECT id, window.start AS hour, count(*) AS n
FROM input WATERMARK ts DELAY OF INTERVAL 1 HOUR GROUP BY id, window(ts, '1 hour')
"""
_JOIN = """
SELECT l.id, l.ts FROM input l JOIN input r
ON l.id = r.id AND l.topic = 'a' AND r.topic = 'b' AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 1 HOUR
"""
_REMOTE = "hdfs://name:8020/eos"


def _step(sql: str) -> Part:
    return {"transform": [{"sql": sql}]}


def _rule(answer: str) -> Part:
    return {"expect": [{"name": answer, "rule": "id > 0", "on_error": answer}]}


def _table(name: str, **more: Any) -> Part:
    return {"sink": {"delta": [{"path": f"/lake/{name}", "columns": ["id"], **more}]}}


# By the letters of the page's table. What only a profile says is under `profile`.
FEATURES: Mapping[str, Part] = {
    "A": {"dedup": {"producer": _STAMP}},
    "B": {"dedup": {"producer": _STAMP, "scope": "producer"}},
    "C": {"dedup": {"by": ["id"], "within": "1 day", "watermark": "ts"}},
    "D": _step(_GROUPS),
    "E": {"source": {"kafka": {"topics": ["a", "b"]}}, **_step(_JOIN)},
    "F": {"output_mode": "update", **_step(_GROUPS)},
    "G": _table("appended"),
    "H": _table("merged", mode="merge", keys=["id"]),
    "I": {"source": {"on_error": "dead_letter"}, "sink": _DLQ, **_rule("dead_letter")},
    "J": _rule("drop"),
    "K": {"dedup": {"producer": _STAMP, "on_gap": "dead_letter"}, "sink": _DLQ},
    "L": {"source": {"kafka": {"topics": ["a", "b"]}}},
    "M": {"source": {"kafka": {"min_partitions": 8}}},
    "N": {"profile": {"state": {"root": _REMOTE}}},
}
# What Spark finds in these plans: tests/spark/test_combinations.py asks it.
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "C": ("DeduplicateWithinWatermark",),
    "D": ("Aggregate",),
    "E": ("Join",),
    "F": ("Aggregate",),
}
Look = Callable[[Plan], PlanState]


def write_features(letters: str, folder: Path) -> Path:
    """Write the pipeline file of these features, and the profile beside it."""
    parts = sorted(letters, key=lambda letter: letter != "E")  # the join is the first step
    text = dict(reduce(_merged, (FEATURES[letter] for letter in parts), BASE))
    if "topics" in text["source"]["kafka"]:
        del text["source"]["kafka"]["topic"]
    (folder / "profile.yaml").write_text(yaml.safe_dump(text.pop("profile", {})))
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(text))
    return path


def refusal(letters: str, folder: Path, look: Look | None = None) -> str:
    """Return the message that refuses these features together; empty if a run accepts them.

    The parts of a run are asked in its order. `look`: what Spark finds in the plan; by default what
    `OPERATORS` has.
    """
    try:
        pipeline = load_pipeline(write_features(letters, folder), {})
        text = yaml.safe_load((folder / "profile.yaml").read_text())
        steps = load(pipeline.transform, folder, folder)
        planned = plan(pipeline, ProfileFile.model_validate(text), ("a:1",), steps)
        with closing(Bus()) as bus:
            planned = with_state(planned, (look or _state(letters))(planned), bus)
            dedup_of(planned, CrashPlan.from_environment())
            if planned.tables and planned.is_stateful:
                # No session and no rows: it refuses before it reads them.
                no: Any = None
                DeltaSinks(planned, no, bus, CrashPlan.from_environment()).check(no)
    except EosError as error:
        return f"{error.message} {error.hint}"
    return ""


def _state(letters: str) -> Look:
    found = [name for letter in letters for name in OPERATORS.get(letter, ())]
    return lambda _: PlanState(tuple(found), branches=2 if "E" in letters else 1)


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {key: _merged(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(each for each in other if each not in one)]
    return other
