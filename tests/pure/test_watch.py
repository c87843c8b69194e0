"""`eos status --watch` as a process of its own: on a terminal and in a pipe, until a signal ends
it, and with brokers that are away or silent."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.docs import blocks, require_shown
from support.waiting import wait_until

CHECKOUT = Path(__file__).parents[2]
PIPELINE = "version: 1\nname: orders\nsource: {kafka: {topic: a}}\nsink: {kafka: {topic: b}}\n"
PROFILE = "state: {root: state}\n"
_HIDE_CURSOR, _SHOW_CURSOR, _ERASE_LINE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines" / "orders"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text(PROFILE)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
    return {**inherited, "PYTHONPATH": str(CHECKOUT), **more}


@contextmanager
def watching(
    project: Path, *words: str, stdout: int = subprocess.PIPE, **env: str
) -> Iterator[Any]:
    command = [sys.executable, "-m", "eos", "status", *words, "--watch", "1"]
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment(**env),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def use_broker(project: Path, port: int) -> None:
    (project / "conf" / "local.yaml").write_text(
        f'{PROFILE}kafka: {{bootstrap: "127.0.0.1:{port}"}}\n'
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_one_object_a_line_until_a_signal_ends_it(
    project: Path, number: signal.Signals
) -> None:
    with watching(project, "orders", "--json") as watch:
        found = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.send_signal(number)
        rest, error = watch.communicate()
        assert watch.returncode == 128 + number
        assert error == ""
    assert found[0]["at"] < found[1]["at"]
    assert [each["note"] for each in found] == ["the embedded broker is stopped"] * 2
    for line in rest.splitlines():
        json.loads(line)


def test_a_pipe_gets_plain_text(project: Path) -> None:
    with watching(project, TERM="xterm", FORCE_COLOR="1") as watch:
        first = [watch.stdout.readline() for _ in range(4)]
    assert first[1:3] == [f"no pipeline has run with the state root {project / 'state'}\n", "\n"]
    assert "\x1b" not in "".join(first)


def test_a_terminal_is_redrawn_and_restored(project: Path) -> None:
    ours, theirs = pty.openpty()
    drawn = b""

    def draws(text: str) -> bool:
        nonlocal drawn
        with suppress(OSError):  # Linux reports the end of a terminal so
            drawn += os.read(ours, 65536)
        return text in drawn.decode()

    with watching(project, "orders", stdout=theirs, TERM="xterm", COLUMNS="200") as watch:
        os.close(theirs)
        wait_until(lambda: draws(_ERASE_LINE), lambda: repr(drawn), watch)
        assert _SHOW_CURSOR not in drawn.decode()
        watch.send_signal(signal.SIGTERM)
        wait_until(lambda: draws(_SHOW_CURSOR), lambda: repr(drawn))
        assert watch.wait() == 128 + signal.SIGTERM
    os.close(ours)
    text = drawn.decode()
    assert _HIDE_CURSOR in text
    assert "every 1 s until Ctrl-C\r\n" in text
    assert text.count("eos broker start, then eos status orders") > 1


def test_a_dumb_terminal_gets_plain_text(project: Path) -> None:
    ours, theirs = pty.openpty()
    with watching(project, "orders", stdout=theirs, TERM="dumb") as watch:
        os.close(theirs)
        drawn = b""
        while drawn.count(b"pipeline     orders") < 2:
            drawn += os.read(ours, 65536)
        watch.kill()
    os.close(ours)
    assert b"\x1b" not in drawn


def test_a_broker_that_is_away_or_silent_is_shown_as_documented(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with watching(project, "orders", "--json") as watch:
        shown = [watch.stdout.readline()]
        use_broker(project, port)

        def await_code(code: str) -> dict[str, Any]:
            """Return the next error with this code."""
            for line in watch.stdout:
                error = json.loads(line).get("error")
                if error and error["code"] == code:
                    shown.append(line)
                    return error
            raise AssertionError(watch.communicate())

        for _ in range(2):
            assert "`eos doctor orders`" in await_code("brokers_unreachable")["hint"]
        with closing(socket.create_server(("127.0.0.1", port))):
            await_code("still_waiting")
        watch.send_signal(signal.SIGINT)  # also while a look has no result
        assert (watch.communicate()[1], watch.returncode) == ("", 128 + signal.SIGINT)
    require_shown(dict(blocks(""))["monitoring.md-6"], [shown[0], *shown[2:]])


def test_an_error_that_does_not_pass_ends_it(project: Path) -> None:
    with watching(project, "two") as watch:
        out, error = watch.communicate()
    assert (watch.returncode, out) == (2, "")
    assert error.startswith("eos: [pipeline_not_found] there is no pipeline 'two'")


def test_it_ends_when_nobody_reads_its_output(project: Path) -> None:
    with watching(project, "--json") as watch:
        assert json.loads(watch.stdout.readline())["pipelines"] == []
        watch.stdout.close()
        assert watch.wait() == 128 + signal.SIGPIPE
        assert watch.stderr.read() == ""
