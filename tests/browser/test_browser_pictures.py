"""The pictures of the documentation: the same every time, because time stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import ROOT, Site, served, watch
from tests.conftest import ScratchDatabase

pytestmark = pytest.mark.xdist_group("browser")

STILL = "2026-03-02T14:30:00+00:00"  # the instant of the studio
IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "overview": "/",
    "models": "/models/llama-3-8b/",
    "fleet": "/fleet/",
    "replica": "/fleet/llama-t4-1/",
    "rollout": "/rollouts/1/",
    "history": "/history/",
    "tenant": "/tenants/acme/",
    "requests": "/requests/",
    "engine": "/engine/",
    "system": "/system/",
}


@pytest.fixture(scope="module")
def studio(
    module_database: ScratchDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("studio")
    studio = "tests.browser.studio:application"
    with served(module_database, folder, studio, broker=8, past=("everything", STILL)) as made:
        yield made


# What was drawn over in parts has edges that are one shade off, and what sticks is a layer of
# its own, whose text lies between pixels or not: draw all of it at once, in one layer.
REPAINT = """() => new Promise((done) => {
  const [root, twice] = [document.documentElement, (then) =>
    requestAnimationFrame(() => requestAnimationFrame(then))];
  for (const head of document.querySelectorAll('.scroll th')) head.style.position = 'static';
  root.style.visibility = 'hidden';
  twice(() => { root.style.visibility = ''; twice(done); });
})"""


def _picture(page: Page, path: Path, *, whole: bool) -> None:
    page.wait_for_function("document.fonts.status === 'loaded'")
    for chart in page.locator("[data-chart]").all():
        chart.locator("svg").first.wait_for(timeout=30_000)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.evaluate(REPAINT)
    page.screenshot(path=path, full_page=whole, animations="disabled")
    assert path.stat().st_size > 10_000, "a picture this small shows an empty page"


@pytest.mark.parametrize(
    ("suffix", "width", "scheme", "names"),
    [
        ("", 1440, "light", tuple(PICTURES)),
        ("-dark", 1440, "dark", ("overview", "rollout")),
        ("-narrow", 390, "light", ("overview", "rollout")),
    ],
)
def test_each_page_has_its_picture_and_no_sideways_scroll(
    studio: Site, chromium: Browser, suffix: str, width: int, scheme: str, names: tuple[str, ...]
) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 1000},
        timezone_id="UTC",
        reduced_motion="reduce",
        color_scheme="dark" if scheme == "dark" else "light",
    )
    context.set_default_timeout(30_000)
    context.clock.set_fixed_time(STILL)
    watched = watch(context.new_page(), studio).arrive("otto")
    for name in names:
        page = watched.open(PICTURES[name])
        watched.until_live()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        _picture(page, IMAGES / f"{name}{suffix}.png", whole=True)
    assert watched.problems() == []
    context.close()
