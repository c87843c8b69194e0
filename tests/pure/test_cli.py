"""The command line: data on stdout, words on stderr, an exit code for each kind of end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eos.cli.main import app
from eos.errors import FencedError, PromiseBrokenError, UnavailableError, UsageError, report

ROOT = Path(__file__).parents[2]
VERBS = {each.name or each.callback.__name__ for each in app.registered_commands}
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
        "from eos.cli.main import app\n"
        "try: app(['--help'], prog_name='eos')\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'pydantic', 'yaml', 'kafka', 'pyarrow', 'numpy', 'rich'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in ("run", "lint", "schema", "broker"):
        assert f"  {verb} " in done.stdout
    assert "Exit codes: 0 success" in done.stdout
    assert "loaded: []" in done.stdout


def test_the_version_is_data():
    from eos import __version__

    done = eos("--version")
    assert (done.returncode, done.stdout) == (0, f"eos {__version__}\n")


def test_an_unknown_verb_suggests_the_nearest():
    done = eos("lnt")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Did you mean 'lint'" in done.stderr


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
    assert "Usage: eos broker" in shown.stdout
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


@pytest.mark.parametrize("verb", sorted(VERBS - {"run"}))  # that one becomes another process
def test_the_help_of_every_verb_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        app([verb, "--help"], prog_name="eos")
    assert ended.value.code in (0, None)
    said = capsys.readouterr().out
    examples = [line.strip().removeprefix("Example: ") for line in said.splitlines()]
    assert any(line.startswith(f"eos {verb} ") for line in examples)
    assert "\x1b" not in said


ENTRY = """
import sys
from eos.__main__ import main
try:
    main()
except SystemExit as end:
    print("typer" in sys.modules, end.code)
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lint", str(QUICKSTART)], "False 0"),
        (["lint", "--json", str(QUICKSTART)], "False 0"),
        (["plan", str(QUICKSTART)], "False 0"),
        (["plan", "nothing.yaml"], "False 2"),
        (["lint", "--help"], "True 0"),
        (["lint"], "True 2"),
    ],
)
def test_what_asks_nobody_does_not_load_the_library_of_the_command_line(words, says):
    command = [sys.executable, "-c", ENTRY, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == says, done.stderr
