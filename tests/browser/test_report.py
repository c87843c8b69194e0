"""The report as a browser shows it: harmless, quiet, readable in both schemes, usable with keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.report_page import Chromium, aborted, history, make_page, past_ends, transaction

from eos.finding import Finding
from eos.inspect.audit_live import ClusterState, ComparedField
from eos.report.conclusion import Level, verdict
from eos.report.content import gather
from eos.report.timeline import STEPS

EVIL = (
    "</script></style><script>document.title='owned'</script><img src=//x.invalid/y>"
    "\" onfocus=\"document.title='owned'\" autofocus x='"
)
# By name: micro-batches, seconds between two, one in so many that was aborted, and fenced.
HISTORIES = {"ten": (10, 1.0, 0, 0), "sixty": (60, 1.0, 25, 20), "many": (20_000, 7.0, 40, 5000)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty micro-batches, one a second: 12 and 37 were aborted before, 10, 30 and 50 fenced."""
    page = tmp_path_factory.mktemp("report") / "plain.html"
    found = gather(history(60, aborts=25, fences=20))
    lags = {tp: end + 7 for tp, end in found.position.items()}
    page.write_text(make_page(found, cluster=ClusterState(ends=lags, problem="no answer")))
    return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of short and long histories, with a lag of 7 to 70,000 offsets."""
    folder, made = tmp_path_factory.mktemp("reports"), {}
    for name, (count, every_s, aborts, fences) in HISTORIES.items():
        how = {"every_s": every_s, "aborts": aborts, "fences": fences, "is_measured": True}
        found = gather(history(count, **how))
        past = past_ends(found, ahead=7 if count < 100 else 70_000, every_s=every_s)
        page = made[name] = folder / f"{name}.html"
        page.write_text(make_page(found, cluster=ClusterState(past=past)))
    return made


def test_it_asks_for_nothing_and_nothing_is_refused(chromium: Chromium, plain: Path):
    chromium.open(plain)
    assert chromium.run("document.querySelectorAll('svg path').length") > 5
    assert chromium.fetched == []
    assert chromium.complaints == []


def test_its_policy_lets_nothing_out_and_no_other_script_in(chromium: Chromium, plain: Path):
    chromium.open(plain)
    chromium.run(
        "document.body.append(Object.assign(document.createElement('img'),{src:'http://x.invalid/'}));"
        "document.body.append(Object.assign(document.createElement('script'),{text:'window.ran=1'}));"
        "fetch('http://x.invalid/').catch(() => { document.title = 'refused' })"
    )
    chromium.until(lambda: chromium.run("document.title") == "refused")
    assert chromium.run("window.ran === undefined")
    policy = "Content Security Policy"
    chromium.until(lambda: sum(policy in each for each in chromium.complaints) >= 3)


def test_no_name_and_no_reason_is_more_than_text(chromium: Chromium, tmp_path: Path):
    page = tmp_path / "evil.html"
    evil = history(12, topic=EVIL, aborts=3, reason=EVIL)
    writer = (EVIL, EVIL, 3)
    strange = replace(aborted(99, topic=EVIL, error=EVIL, reason=EVIL), writer=writer)
    broken = transaction(50, EVIL)  # a gap, whose finding has the topic's name
    found = gather([*evil, strange, broken])
    assert found.findings
    # As if the policy were not there.
    text = make_page(found, EVIL, ClusterState(problem=EVIL), since=EVIL)
    assert text.count("Content-Security-Policy") == 1
    page.write_text(text.replace("Content-Security-Policy", "X-None"))
    chromium.open(page)
    chromium.run(
        "const c = document.getElementById('chooser');"
        "for (let i = 0; i <= c.max; i++) { c.value = i; c.dispatchEvent(new Event('input')) }"
    )
    assert chromium.run("document.title") == f"Broken: {EVIL}"
    assert chromium.run("document.querySelectorAll('img').length") == 0
    assert chromium.run(
        "[...document.querySelectorAll('*')].every("
        "e => e.getAttributeNames().every(name => !name.startsWith('on') && name !== 'autofocus'))"
    )
    assert chromium.run("document.scripts.length") == 2
    assert chromium.run("document.querySelector('h1').textContent") == EVIL
    assert chromium.fetched == []
    assert chromium.complaints == []


def test_a_step_is_told_by_keys_and_by_a_click(chromium: Chromium, plain: Path):
    chromium.open(plain)
    chromium.run("document.getElementById('chooser').focus()")
    chromium.press("End", 35)
    told = chromium.run("document.getElementById('detail').innerText")
    assert "1 committed" in told
    assert "orders-0: 590 to 599" in told
    assert "orders.out-0: 649 to 658" in told
    assert "lag at the end: not known" in told
    assert "a micro-batch on average: 89 ms read, transform, write; 912 ms wait, other" in told
    chromium.press("Home", 36)
    assert "orders-0: 0 to 9" in chromium.run("document.getElementById('detail').innerText")
    assert chromium.run("document.getElementById('chooser').getAttribute('aria-valuetext')")

    x, y = chromium.run(
        "(() => { const s = document.querySelector('.plot svg'); s.scrollIntoView();"
        "const told = JSON.parse(document.getElementById('intervals').textContent);"
        "const slot = told.slots.findIndex(each => each.startsWith('10:00:12'));"
        "const b = s.getBoundingClientRect();"
        "return [b.left + b.width * (slot + .5) / (told.slots.length - 1), b.top + 20] })()"
    )
    chromium.click(x, y)
    told = chromium.run("document.getElementById('detail').innerText")
    assert "1 redone, 1 aborted" in told, told
    chromium.run("document.querySelector('#detail button').click()")
    shown = "[...document.querySelectorAll('#notable tbody tr')].filter(r => !r.hidden).length"
    assert chromium.run(shown) == 2
    assert chromium.run("document.activeElement.textContent") == "Show all again"
    chromium.run("document.getElementById('all').click()")
    assert chromium.run(shown) == 10


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.value)
def test_all_text_can_be_read(chromium: Chromium, tmp_path: Path, level: Level, dark: bool):
    """WCAG's contrast of at least 4.5 for text and 3 for what charts are made of, on what is
    behind it."""
    page = tmp_path / "page.html"
    foreign = Finding("foreign", "somebody else's")
    rows = {
        Level.KEPT: history(60, aborts=25, fences=20),
        Level.LOOK: history(3),
        Level.BROKEN: [*history(20, aborts=5), transaction(50)],
        Level.NOTHING: [],
    }[level]
    cluster = ClusterState(
        "Empty", [ComparedField("one", 1, 1)], (), [foreign] if level is Level.LOOK else []
    )
    found = gather(rows)
    assert verdict(found, cluster).level is level
    page.write_text(make_page(found, cluster=cluster))
    chromium.open(page, dark=dark)
    script = (Path(__file__).parent / "contrast.js").read_text()
    poor, looked_at = chromium.run(script)
    assert poor == []
    assert looked_at > (5 if level is Level.NOTHING else 100)
    ground = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(16, 19, 24)" if dark else "rgb(244, 245, 247)")
    assert chromium.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1240], ids=["phone", "desk"])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_page_fits_its_window(
    chromium: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool
):
    """Nothing moves sideways, no text is small, and the labels of charts are apart."""
    chromium.open(pages[name], dark=dark, width=width)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run(
        "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 200)"
    )
    assert chromium.run("document.querySelectorAll('.chart svg').length") == 7 - (name == "ten")
    fit = (Path(__file__).parent / "fit.js").read_text()
    misfits, looked_at = chromium.run(fit)
    assert misfits == []
    assert looked_at > 100
    poor, _ = chromium.run((Path(__file__).parent / "contrast.js").read_text())
    assert poor == []
    assert chromium.complaints == []


def test_lag_over_time_is_drawn_and_told(chromium: Chromium, pages: dict[str, Path]):
    chromium.open(pages["sixty"])
    lag = "[...document.querySelectorAll('.chart')].find(c => c.innerText.startsWith('Lag'))"
    bars = chromium.run(f"{lag}.querySelector('path.half').getAttribute('d')")
    assert bars.count("M") == 60
    assert chromium.run(f"{lag}.innerText").split("\n")[1:3] == [
        "offsets, known at 60 of 60 moments",
        "10",
    ]
    chromium.run("document.getElementById('chooser').focus()")
    chromium.press("End", 35)
    told = chromium.run("document.getElementById('detail').innerText")
    assert "lag at the end: 7 offsets" in told
    assert "lag in time: at most 59 s" in told


def test_lag_in_time_and_each_step_are_drawn(chromium: Chromium, pages: dict[str, Path]):
    chromium.open(pages["sixty"])

    def chart(title: str) -> str:
        begins = f"c.innerText.startsWith('{title}')"
        return f"[...document.querySelectorAll('.chart')].find(c => {begins})"

    lag = chromium.run(f"{chart('Lag in time')}.querySelector('path.half').getAttribute('d')")
    assert lag.count("M") == 59, "of sixty, the first has none"
    steps = chart("Time per micro-batch, by step")
    legend = chromium.run(f"[...{steps}.querySelectorAll('.key')].map(k => k.innerText)")
    assert [each for each in STEPS if each not in legend] == []
    drawn = chromium.run(
        f"[...{steps}.querySelectorAll('path:not(.grid)')].map(p => p.className.baseVal)"
    )
    assert len(set(drawn)) == len(drawn) == len(STEPS), "each step has a colour of its own"


def test_a_reader_of_the_screen_has_words_for_everything(chromium: Chromium, plain: Path):
    chromium.open(plain)
    assert chromium.run(
        "[...document.querySelectorAll('svg')].every("
        "s => s.getAttribute('role') === 'img' && s.querySelector('title').textContent.length > 5)"
    )
    assert chromium.run("document.documentElement.lang") == "en"
    assert chromium.run("document.querySelectorAll('h1').length") == 1
    assert chromium.run(
        "[...document.querySelectorAll('table')].every(t => t.caption &&"
        " t.tHead.rows[0].cells.length === t.tBodies[0].rows[0].cells.length)"
    )
    rows = chromium.run("document.querySelectorAll('details tbody tr').length")
    assert rows == 60, "the charts once more, as a table"


def test_without_its_script_it_says_the_same(chromium: Chromium, plain: Path):
    chromium.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(plain)
        root = chromium.ask("DOM.getDocument", depth=-1)["root"]["nodeId"]
        found = chromium.ask("DOM.querySelectorAll", nodeId=root, selector="#notable tbody tr")
        assert len(found["nodeIds"]) == 10
        (chooser,) = chromium.ask("DOM.querySelectorAll", nodeId=root, selector=".chooser label")[
            "nodeIds"
        ]
        assert "hidden" in chromium.ask("DOM.getAttributes", nodeId=chooser)["attributes"]
    finally:
        chromium.ask("Emulation.setScriptExecutionDisabled", value=False)
