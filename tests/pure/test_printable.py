"""Control characters from outside are shown, and do nothing, wherever messages are rendered."""

from __future__ import annotations

import io

import pytest

from eos.errors import UnavailableError, report
from eos.observe import events
from eos.observe.console import Console
from eos.printable import escaped, one_line, printable

EVIL = "a\x1b[2Jb\rc\x00d\x9be\u202ef\ud800g\x7f"
SHOWN = r"a\x1b[2Jb\x0dc\x00d\x9be\u202ef\ud800g\x7f"


def test_what_acts_on_a_terminal_is_escaped_and_other_text_is_kept() -> None:
    assert escaped(EVIL) == SHOWN
    plain = 'caf\u00e9 "x" [y] \U0001f600 \u05d0\\n'
    assert escaped(plain) == plain
    assert escaped("one\ntwo") == "one\ntwo"


def test_lines_of_a_message_never_pass_for_another_message() -> None:
    assert printable("x\neos: pipeline p stopped: drained\n  y\n") == (
        "x\n  eos: pipeline p stopped: drained\n  y\n"
    )
    assert one_line("x\ny") == r"x\ny"
    assert one_line("x\u2028y\x85") == r"x\u2028y\x85"


def test_every_place_that_renders_messages_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnavailableError("example", f"it said {EVIL}\neos: forged", hint=EVIL)
    assert report(error) == 5
    said = capsys.readouterr().err
    assert said == f"eos: [example] it said {SHOWN}\n  eos: forged\n  hint: {SHOWN}\n"
    stream = io.StringIO()
    Console(stream)(events.Warned(f"{EVIL}\neos: forged"))
    assert stream.getvalue() == f"eos: warning: {SHOWN}\\neos: forged\n"
