"""The command line: data on stdout, words on stderr, an exit code for each kind of end."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.errors import raises

from eos.cli.main import command, command_line
from eos.cli.pipeline_argument import since
from eos.errors import FencedError, PromiseBrokenError, UnavailableError, UsageError, report
from eos.local.broker_probe import silent
from eos.recover.change import _text

ROOT = Path(__file__).parents[2]
VERBS = command_line().verbs
HEAVY = {
    *("pyspark", "pydantic", "yaml", "kafka", "pyarrow", "numpy", "rich", "argcomplete"),
    "jinja2",
}
QUICKSTART = ROOT / "pipelines" / "quickstart" / "pipeline.yaml"


def eos(*words: str, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eos", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )


def pipeline(folder: Path, transform: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(
        "version: 1\nname: a\nsource: {kafka: {topic: a}}\nsink: {kafka: {topic: b}}\n" + transform
    )
    return path


def test_help_names_all_verbs_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from eos.__main__ import main\n"
        "sys.argv = ['eos', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('loaded:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in VERBS:
        assert re.search(rf"(?m)^    {verb} +[A-Z]", done.stdout), verb
    assert "Exit codes: 0 success" in done.stdout
    assert "loaded: []" in done.stdout


def test_without_a_verb_the_help_is_words_and_a_usage_error():
    for words in ([], ["broker"]):
        done = eos(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: eos")


def test_the_version_is_data():
    from eos import __version__

    done = eos("--version")
    assert (done.returncode, done.stdout) == (0, f"eos {__version__}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lnt", "eos: error: unknown command `lnt`; did you mean `lint`?"),
        ("--verison", "eos: error: unknown option `--verison`; did you mean `--version`?"),
        ("broker strt", "eos broker: error: unknown command `strt`; did you mean `start`?"),
        ("plan a --jsno", "eos plan: error: unknown option `--jsno`; did you mean `--json`?"),
        ("recover a --yse=1", "eos recover: error: unknown option `--yse`; did you mean `--yes`?"),
        ("lint --js a", "eos lint: error: unknown option `--js`"),  # no abbreviations
        ("schema pipeline profile", "eos schema: error: unexpected argument `profile`"),
        ("broker start --nodes 10", "--nodes: expected a number from 1 to 9, got '10'"),
        ("broker start --port 0", "--port: expected a number from 1 to 65535, got '0'"),
        ("replay a --limit 0", "--limit: expected a number, 1 or more, got '0'"),
    ],
)
def test_a_usage_error_suggests_the_nearest(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        command(words.split())
    assert ended.value.code == 2
    said, error = capsys.readouterr()
    assert said == ""
    assert error.startswith("usage: eos")
    assert told in error


def test_options_may_be_between_arguments():
    options = command_line().parse(["lint", "one", "--json", "two"])
    assert (options.pipelines, options.json) == (["one", "two"], True)
    options = command_line().parse(["status", "--profile", "a", "one", "--json"])
    assert (options.pipeline, options.profile, options.json) == ("one", "a", True)


def test_lint_is_silent_on_stdout_without_problems():
    done = eos("lint", str(QUICKSTART), str(QUICKSTART.parent))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("2 pipelines without problems; `eos test` checks columns")


def test_lint_tells_all_problems_of_all_files(tmp_path):
    one = pipeline(tmp_path / "one", "nme: x\ntrigger: {every: 1}\n")
    two = pipeline(tmp_path / "two", "transform:\n  - python: 'nowhere:f'\n  - python: 'm:g'\n")
    (two.parent / "m.py").write_text("def g(frame, rate): pass")
    done = eos("lint", str(one), str(two))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.removeprefix(str(tmp_path)).split(": ")[0] for line in lines] == [
        "/one/pipeline.yaml:5:1",
        "/one/pipeline.yaml:6:18",
        "/two/pipeline.yaml:6:13",
        "/two/pipeline.yaml:7:13",
    ]
    assert "unknown key `nme`; did you mean `name`?" in lines[0]
    assert "there is no module `nowhere`" in lines[2]
    assert "needs the argument `rate`" in lines[3]


def test_lint_as_json_is_one_object_whatever_a_module_prints(tmp_path):
    path = pipeline(tmp_path, "transform: [{python: 'm:missing'}]\n")
    (tmp_path / "m.py").write_text("print('hello from the module')")
    done = eos("lint", str(path), "--json")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["path"], problem["line"], problem["column"]) == (str(path), 5, 22)
    assert "has no function `missing`" in problem["message"]
    assert "hello from the module" in done.stderr
    assert json.loads(eos("lint", str(QUICKSTART), "--json").stdout) == {"problems": []}


def test_lint_of_no_file_is_an_error_of_usage(tmp_path):
    done = eos("lint", str(tmp_path / "nothing.yaml"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].startswith("eos: [config_file_unreadable] the pipeline")
    assert done.stderr.splitlines()[1] == "  hint: correct the path, or the file's permissions"
    assert "Traceback" not in done.stderr


def test_schema_prints_the_schema_of_either_file():
    assert "source" in json.loads(eos("schema").stdout)["required"]
    assert "kafka" in json.loads(eos("schema", "profile").stdout)["properties"]
    assert eos("schema", "else").returncode == 2


def test_run_is_the_parent_of_spark_submit():
    done = eos("run")
    assert done.returncode == 2
    assert "eos: [pipeline_argument_missing] " in done.stderr
    said = eos("run", "--help").stdout
    assert "usage: ./spark-submit.sh" in said
    assert "  ./spark-submit.sh pipelines/quickstart/pipeline.yaml --profile local\n" in said
    missing = eos("run", "nothing.yaml", "--profile", "x", "--conf", "a=b")
    assert missing.returncode == 2
    assert "nothing.yaml" in missing.stderr


def test_broker_is_a_verb_with_verbs_of_its_own(tmp_path):
    shown = eos("broker", "--help")
    assert shown.returncode == 0
    assert "usage: eos broker" in shown.stdout
    assert "start" in shown.stdout
    stopped = eos("broker", "status", "--json", cwd=tmp_path)
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["running"] is False


def test_broker_of_a_real_cluster_is_refused_without_a_stack_trace(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "prod.yaml").write_text("kafka: {bootstrap: 'a:1'}")
    done = eos("broker", "status", "--profile", "prod", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("eos: [profile_has_cluster] profile 'prod' ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("example", "u", hint="h"), 2),
        (FencedError("example", "f"), 3),
        (PromiseBrokenError("example", "p"), 4),
        (UnavailableError("example", "a"), 5),
    ],
)
def test_an_error_ends_with_its_recoverys_code(error, code, capsys):
    assert report(error) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    hint = f"  hint: {error.hint}\n" if error.hint else ""
    assert shown.err == f"eos: [example] {error.message}\n{hint}"


@pytest.mark.parametrize("words", [["schema"], ["broker", "status"]])
def test_a_reader_that_has_ended_is_no_finding(tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "eos", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_path_that_can_not_be_used_is_named():
    for words in (["lint", "a" * 300], ["run", "a" * 300]):
        done = eos(*words)
        assert done.returncode == 2
        assert done.stderr.startswith("eos: [file_inaccessible] aaa")
        assert "can't be used: File name too long\n  hint: " in done.stderr


def test_a_home_folder_of_nobody_is_named(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: '~nobody-has-it/eos'}\n")
    done = eos("broker", "status", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("eos: [home_folder_unknown] the path '~nobody-has-it/eos' ")


def test_the_project_around_the_working_folder_counts(tmp_path):
    inside = pipeline(tmp_path / "pipelines" / "a").parent
    done = eos("broker", "status", cwd=inside)
    assert done.stdout == f"stopped; data in {tmp_path}/.eos/broker\n"


def test_an_address_that_no_host_can_have_is_silent():
    assert silent(["kafka..example:9092"]) == {"kafka..example:9092": "no valid host and port"}


def test_a_reason_that_is_no_text_can_be_read_from_the_ledger():
    """Half of a surrogate pair would make the record unreadable."""
    assert _text("caf\udce9") == "caf?"


def test_since_may_be_long_ago():
    found = since("60 days")
    assert (datetime.now(timezone.utc) - found).days == 60
    assert since("2026-11-21T10:00:00") == datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    for zoned in ("2026-11-21T11:00:00+0100", "2026-11-21 10:00:00.5z"):
        assert since(zoned).replace(microsecond=0) == since("2026-11-21T10:00:00")
    for wrong in ("1 fortnight", "200 years", "2026-13-01"):
        with raises("since_invalid", UsageError):
            since(wrong)


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"run"}))  # the launcher has its help
def test_the_help_of_every_verb_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        command([verb, "--help"])
    assert ended.value.code in (0, None)
    said = capsys.readouterr().out
    assert any(line.startswith(f"  eos {verb} ") for line in said.splitlines())
    assert "\x1b" not in said


ENTRY = """
import sys
from eos.__main__ import main
try:
    main()
except SystemExit as end:
    print(end.code, sorted({heavy!r} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["recover", "--help"], "0 []"),
        (["broker", "start", "--help"], "0 []"),
        (["verify"], "2 []"),
        (["lint"], "2 []"),
        (["lnt"], "2 []"),
    ],
)
def test_help_and_usage_errors_load_nothing_heavy(words, says):
    command = [sys.executable, "-c", ENTRY.format(heavy=HEAVY), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == says, done.stderr
