"""The Python API without Spark: keys, problems, references, and the public signatures."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.docs import ROOT, blocks
from support.errors import raises

import eos
from eos.api.declaration import pipeline_of, profile_of
from eos.api.query import Query, started
from eos.api.steps import Step, _modules_of, reference
from eos.config.saved_job import is_job, load, save
from eos.errors import EosError, UnavailableError, UsageError
from eos.run.prepared import RunOptions, prepare
from eos.transform.functions import own_modules

SIGNATURES = ROOT / "tests" / "fixtures" / "python-api.txt"
KAFKA = eos.Kafka("one:9092,two:9092")


def stream(**given: Any) -> eos.Stream:
    return eos.read_kafka(None, "orders", kafka=KAFKA, **given)  # type: ignore[arg-type] - no Spark


def job(source: eos.Stream | None = None, name: str = "enriched") -> eos.Job:
    """A job that no session was checked for."""
    return eos.Job(source or stream(), name)


def doubled(rows: Any, by: int = 2) -> Any:
    return rows, by


def test_a_job_has_the_keys_of_a_pipeline_file() -> None:
    source = (
        stream(value=eos.json("id BIGINT, at TIMESTAMP"), max_records=5, on_error="dead_letter")
        .transform(doubled, by=3)
        .named("all_of_it")
        .sql("SELECT * FROM all_of_it")
        .map_arrow(doubled, returns="*")
        .expect("positive", "id > 0", on_error="dead_letter")
        .lookup("customers", columns="id BIGINT", delta="/lake/customers")
        .drop_resent(id="header(p)", epoch="header(e)", sequence="header(s)", on_gap="accept")
    )
    declared = (
        job(source)
        .to_topic("a", key="id", value=eos.json(columns=["id"]), create={"partitions": 2})
        .to_topic("b", where="id > 7")
        .to_delta("/lake/orders", merge_on=["id"])
        .dead_letters("c")
        .declared()
    )
    found = pipeline_of(declared)
    assert found.source.kafka.topic == "orders"
    assert found.source.kafka.max_records == 5
    assert [each.name for each in found.transform] == ["all_of_it", None, None]
    assert found.transform[0].python == f"{__name__}:doubled"
    assert found.transform[0].arguments == {"by": 3}
    assert [each.topic for each in found.sink.kafka] == ["a", "b"]
    assert found.sink.delta[0].keys == ("id",)
    assert found.sink.dead_letter is not None
    assert found.producers is not None
    assert found.producers.on_gap == "accept"
    assert set(found.tables) == {"customers"}


def test_a_saved_job_is_read_as_a_pipeline_file(tmp_path: Path) -> None:
    # An emoji, and characters that end a line for YAML or that it refuses.
    text = "\U0001f600 \u00e4 \x7f \x85 \u2028 \ufeff \\u0041"
    sql = f"SELECT '$HOME', '${{USER}}' AS x, '{text}' AS y, * FROM input"
    declared = job(stream().sql(sql)).to_topic("a")
    profile = profile_of({"state": {"root": str(tmp_path / "state")}}, {})
    assert load(profile, "enriched", tmp_path) is None
    save(profile, "enriched", declared.declared())
    found = load(profile, "enriched", tmp_path)
    assert found is not None
    assert is_job(found)
    assert found.transform[0].sql == sql
    (path,) = (tmp_path / "state" / "jobs").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    elsewhere = profile_of({"state": {"root": "hdfs://node/eos"}}, {})
    save(elsewhere, "enriched", declared.declared())
    assert load(elsewhere, "enriched", tmp_path) is None


def test_a_folder_of_jobs_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    on_disk = profile_of({"state": {"root": str(tmp_path / "file")}}, {})
    with raises("jobs_folder_inaccessible", UnavailableError):
        save(on_disk, "enriched", {})
    login = {"endpoint": "http://127.0.0.1:1", "access.key": "a", "secret.key": "b"}
    conf = {f"spark.hadoop.fs.s3a.{name}": value for name, value in login.items()}
    in_bucket = profile_of({"state": {"root": "s3a://bucket/eos"}, "spark": {"conf": conf}}, {})
    with raises("jobs_folder_inaccessible", UnavailableError):
        load(in_bucket, "enriched", tmp_path)


def test_a_damaged_declaration_is_reported_as_a_file_is(tmp_path: Path) -> None:
    profile = profile_of({"state": {"root": str(tmp_path)}}, {})
    save(profile, "enriched", {})
    (tmp_path / "jobs" / "eos.enriched.json").write_bytes(b"\xff{")
    with pytest.raises(UsageError):
        load(profile, "enriched", tmp_path)


def test_a_saved_dataframe_job_is_never_run_as_a_file() -> None:
    declared = {**job().to_topic("a").declared(), "source": {"dataframe": True}}
    with pytest.raises(UsageError) as raised:
        prepare(pipeline_of(declared), RunOptions())
    assert raised.value.code == "source_dataframe_in_file"


def test_problems_name_the_key_and_not_a_line() -> None:
    wrong = job(name="Enriched").to_topic("a b", key=eos.json()).to_topic("c", compression="lzo")  # type: ignore[arg-type] - as a user might
    with pytest.raises(UsageError) as raised:
        wrong.check()
    assert raised.value.code == "config_invalid"
    paths = {each.path for each in raised.value.fields["problems"]}
    assert paths == {
        "name",
        "sink.kafka[0].topic",
        "sink.kafka[0].key",
        "sink.kafka[1].compression",
    }
    assert "  sink.kafka[0].topic: expected a topic name" in raised.value.message
    assert ":0:" not in raised.value.message


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: stream().transform("SELECT 1"), "step_not_callable"),
        (lambda: stream().named("first"), "step_missing"),
        (
            lambda: (
                stream()
                .drop_resent(id="header(p)", epoch="header(e)", sequence="header(s)")
                .drop_duplicates(["key"], within="1 hour", watermark="timestamp")
            ),
            "dedup_repeated",
        ),
        (lambda: job(stream().transform(doubled, times=2)).to_topic("a").check(),
         "transform_arguments_invalid"),
        (lambda: eos.exactly_once("orders", "enriched"), "job_source_unsupported"),  # type: ignore[arg-type] - as a user might
        (lambda: job().to_topic("a").start(available_now=True, once=True), "config_invalid"),
        (lambda: job().to_topic("a").run("2026-11-23"), "job_streaming"),
        (lambda: job().to_topic("a").run(""), "run_id_invalid"),
        (lambda: job().to_topic("a").run("x" * 101), "run_id_invalid"),
        (lambda: job().to_topic("a").run("caf\udce9"), "run_id_invalid"),
    ],
)  # fmt: skip
def test_refuses(made: Any, code: str) -> None:
    with pytest.raises(EosError) as raised:
        made()
    assert raised.value.code == code


def test_a_function_has_a_reference_whatever_it_is() -> None:
    def inner(rows: Any) -> Any:
        return rows

    class Callable:
        def __call__(self, rows: Any) -> Any:
            return rows

    wrapped = functools.partial(doubled, by=4)
    assert reference(doubled) == reference(wrapped) == f"{__name__}:doubled"
    for each in (inner, lambda rows: rows, Callable()):
        step = Step("python", each)
        pipeline_of({**job().to_topic("a").declared(), "transform": [step.as_declared()]})


def test_a_profile_is_a_file_or_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "prod.yaml").write_text(
        "names: {prefix: team}\nkafka: {bootstrap: other:9092}\nstate: {root: /elsewhere}\n"
    )
    own = {**KAFKA.as_profile(), "state": {"root": "here"}}
    for chosen in ("prod", {"names": {"prefix": "team"}}):
        found = profile_of(chosen, own)
        assert found.names.prefix == "team"
        assert found.kafka.bootstrap == ("one:9092", "two:9092")
        assert found.state.root == str(tmp_path / "here")
    assert profile_of("prod", KAFKA.as_profile()).state.root == "/elsewhere"
    with pytest.raises(UsageError) as raised:
        profile_of(None, eos.Kafka("one:9092", security={"password": "open"}).as_profile())
    assert "open" not in raised.value.message.replace("openlineage", "")


def signatures() -> Iterator[str]:
    """One line for each public name, and each public member of a class."""
    for name in eos.__all__:
        found = getattr(eos, name)
        if inspect.isclass(found) and issubclass(found, BaseException):
            yield f"{name}: error, {found.__base__.__name__}"
        elif inspect.isclass(found):
            yield f"{name}{_signature(found)}"
            for member, value in sorted(vars(found).items()):
                if isinstance(value, property):
                    yield f"{name}.{member}: {value.fget.__annotations__['return']}"
                elif inspect.isfunction(value) and not member.startswith("_"):
                    yield f"{name}.{member}{_signature(value)}"
        else:
            yield f"{name}{_signature(found)}"


def _signature(found: Any) -> str:
    return str(inspect.signature(found)).replace("'", "")


def test_the_public_signatures_are_those_that_the_changelog_has() -> None:
    """After a change: `python -m pytest` shows the difference; write the changelog's line, and put
    its text into the first line of the file."""
    first, _, listed = SIGNATURES.read_text().partition("\n\n")
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert " ".join(first.removeprefix("changelog: ").split()) in changelog
    assert listed.splitlines() == list(signatures())


def test_each_public_name_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "python.md").read_text()
    left = [name for name in eos.__all__ if f"eos.{name}" not in guide]
    assert not left


def test_importing_eos_loads_neither_spark_nor_the_api() -> None:
    code = "import sys, eos; assert not {'pyspark', 'pydantic', 'eos.api'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def programs() -> Mapping[str, str]:
    return {name: text for name, text in blocks("python") if name.startswith("python.md")}


def test_the_guides_examples_are_python() -> None:
    assert len(programs()) == 4
    for name, text in programs().items():
        compile(text, name, "exec")


def test_a_step_that_exits_fails_its_job() -> None:
    query = Query(None)  # type: ignore[arg-type] - it is not started
    query._run(lambda: sys.exit(3))
    assert query.exit_code == 5
    assert isinstance(query.last_error, UnavailableError)


def test_an_interrupt_of_the_start_stops_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it runs on, and the caller has no query to stop it with."""
    queries: list[Query] = []

    def interrupted(query: Query, _run: Any) -> None:
        queries.append(query)
        raise KeyboardInterrupt

    monkeypatch.setattr(Query, "_start", interrupted)
    monkeypatch.setattr("eos.api.query._prepare", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        started(None, None, RunOptions(), {})  # type: ignore[arg-type] - nothing is started
    assert queries[0]._stopping.is_requested


def test_a_functions_modules_are_those_of_its_project_without_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most libraries can't be pickled, and executors have them."""
    library = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    library.mkdir(parents=True)
    (library / "installed_here.py").write_text("")
    (tmp_path / "beside_it.py").write_text("")
    (tmp_path / "of_a_job.py").write_text(
        "import beside_it, installed_here\ndef step(frame):\n    return frame\n"
    )
    for folder in (library, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    import of_a_job  # type: ignore[import-not-found]

    assert _modules_of(of_a_job.step) == ("beside_it", "of_a_job")
    assert own_modules([tmp_path]) == ("beside_it", "of_a_job")
    assert own_modules([library]) == ("installed_here",), "a project that is installed itself"
    python = Path(sysconfig.get_paths()["stdlib"]).parent
    assert own_modules([python]) == (), "a Python environment in the project"
