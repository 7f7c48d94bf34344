"""The report in a real browser, without a window: it renders, says nothing wrong, and shows what the numbers are."""

import json
import re
import shutil
import subprocess

import pytest
import risk_models
from test_report import Cells

from phvae.report import tail_report
from phvae.report.page import KINDS, look_up

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here; Debian's package is chromium")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
)
# What the browser is asked of the page once it is drawn: sizes of pictures, and whether anything sticks out sideways.
PROBE = """<script>addEventListener("load", () => {
  const sizes = [...document.querySelectorAll("figure svg")].map(svg => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path").length, svg.querySelectorAll("text").length];
  });
  const style = getComputedStyle(document.body);
  const found = {sizes, overflow: document.documentElement.scrollWidth - innerWidth, width: innerWidth,
                 paper: style.backgroundColor, ink: style.color};
  const out = document.createElement("pre");
  out.id = "probe"; out.textContent = JSON.stringify(found); document.body.append(out);
});</script>"""


@pytest.fixture(scope="module")
def report():
    return tail_report(
        risk_models.model(latent_dim=0),
        risk_models.table(),
        levels=[0.9, 0.99],
        periods=[20],
        layers=[(2.0, 5.0)],
        rtol=0.1,
    )


def drawn(report, folder, *, width, flags=()):
    """The page as the browser has it in the end, what it measured there, and what it complained of."""
    page = folder / "page.html"
    report.write(page)
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    words = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900", *flags]
    done = subprocess.run(
        [*words, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    assert probe, done.stdout[-2000:]
    return done.stdout, json.loads(probe[1]), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_browser_shows_the_numbers_without_a_complaint(report, tmp_path):
    dom, _, complaints = drawn(report, tmp_path, width=1200)
    assert complaints == []
    numbers = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    cells = Cells(dom).cells
    assert len(cells) == len(Cells(report.html).cells) > 200
    for at, kind, text in cells:
        assert text == KINDS[kind](look_up(numbers, at)), at


@pytest.mark.parametrize("width", [1200, 500])
def test_every_figure_is_visible_and_nothing_sticks_out(report, tmp_path, width):
    _, probe, _ = drawn(report, tmp_path, width=width)
    assert probe["width"] == width
    assert len(probe["sizes"]) == 5 * 3 + 3 + 3
    for across, high, paths, texts in probe["sizes"]:
        assert 300 < across <= width
        assert 100 < high < across
        assert paths > 5
        assert texts > 5
    assert probe["overflow"] <= 0


def luminance(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_a_dark_room_has_a_dark_page(report, tmp_path):
    (tmp_path / "light").mkdir()
    _, light, _ = drawn(report, tmp_path / "light", width=800)
    _, dark, _ = drawn(report, tmp_path, width=800, flags=["--blink-settings=preferredColorScheme=0"])
    assert luminance(light["paper"]) > 200 > 60 > luminance(light["ink"])
    assert luminance(dark["paper"]) < 60 < 200 < luminance(dark["ink"])
