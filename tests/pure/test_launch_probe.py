"""A cluster that is not there is told while Spark starts, and waited for."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from eos.launch.submit import Application
from eos.local.broker_probe import report_silent, silent


def told(*addresses: str) -> list[str]:
    said: list[str] = []
    report_silent(addresses, said.append).join(300)
    return said


def test_that_nobody_listens_is_told_unless_one_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.socket() as bound:  # and does not listen
            bound.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{bound.getsockname()[1]}"
            assert told(nobody, there) == []
            assert list(silent([there, nobody])) == [nobody]
            words = (
                f"no broker listens at {nobody} yet; waiting for one (`eos doctor` shows the cause)"
            )
            assert told(nobody) == [words]
            app = Application((), {}, tmp_path, None, None, (nobody,))
            app.meanwhile()
            for each in threading.enumerate():
                if each.name == "eos-probe":
                    each.join(300)
            assert capsys.readouterr().err == f"eos: {words}\n"
