"""Every page in Chromium: strict policy, accessible, usable wide and narrow, with and without
JavaScript."""

import itertools
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.browser.conftest import Site, Watched, watch

pytestmark = pytest.mark.xdist_group("browser")

PAGES = (
    "/",
    "/?range=1h",
    "/models/",
    "/models/llama-3-8b/",
    "/fleet/",
    "/fleet/llama-t4-1/",
    "/rollouts/",
    "/rollouts/1/",
    "/rollouts/1/4/",
    "/rollouts/start/",
    "/history/",
    "/history/1/",
    "/tenants/",
    "/tenants/acme/",
    "/requests/",
    "/engine/",
    "/system/",
    "/search/?q=a",
)
ALSO_IN_THE_DARK = ("/", "/rollouts/1/", "/models/llama-3-8b/")


@pytest.fixture(scope="module", autouse=True)
def playing(site: Site) -> Iterator[None]:
    site.play()
    yield
    site.silence()


def rules_broken(watched: Watched) -> list[str]:
    found = Axe().run(
        watched.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
    )
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found.response["violations"]
        for node in violation["nodes"][:3]
    ]


def wait_for_charts(watched: Watched) -> None:
    """Until every figure that has data is drawn."""
    watched.page.wait_for_function(
        """() => [...document.querySelectorAll('[data-chart][data-has=yes] [data-plot]')]
                 .every((plot) => plot.querySelector('.main-svg'))"""
    )


@pytest.mark.parametrize("path", PAGES)
def test_a_page_breaks_no_policy_no_script_no_rule_of_accessibility_and_fits_every_width(
    path: str, operator: Watched
) -> None:
    operator.open(path)
    operator.until_live()
    wait_for_charts(operator)
    busy = ".htmx-request, .htmx-swapping, .htmx-settling, [hx-trigger^=load]"
    # the doctor's page asks again while he is busy, and fades what it replaces
    operator.page.wait_for_function(f"() => !document.querySelector('{busy}')")
    assert operator.problems() == []
    assert rules_broken(operator) == []
    if path in ALSO_IN_THE_DARK:
        operator.page.emulate_media(color_scheme="dark")
        assert rules_broken(operator) == []
    for width in (1280, 390):
        operator.page.set_viewport_size({"width": width, "height": 844})
        operator.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_without_javascript_the_first_paint_is_complete(chromium: Browser, site: Site) -> None:
    context = chromium.new_context(java_script_enabled=False)
    plain = watch(context.new_page(), site).arrive()
    plain.page.wait_for_timeout(0)
    for _ in range(40):  # the web process may just have started to listen
        plain.open("/")
        if "No gateway has spoken" not in plain.page.inner_text("header"):
            break
    assert "% of requests are served in time" in plain.page.inner_text(".answers")
    assert plain.page.locator('[data-table="versions"] tbody tr').count() == 3
    assert "JavaScript is off" in plain.page.inner_text(".banners")
    plain.page.click("text=View as table >> nth=0")
    assert plain.page.locator("[data-chart=goodput] details tbody tr").count() > 1
    plain.open("/fleet/?status=down")
    assert plain.page.locator('[data-table="replicas"] tbody tr').count() == 1
    context.close()


def test_the_theme_is_remembered_and_painted_at_once(operator: Watched) -> None:
    operator.open("/")
    before = operator.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    operator.page.click("[data-theme-toggle]")
    assert operator.page.get_attribute("html", "data-theme") == "dark"
    after = operator.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert before != after
    operator.open("/fleet/")
    assert operator.page.get_attribute("html", "data-theme") == "dark"


def test_times_follow_the_zone_that_was_chosen(chromium: Browser, site: Site) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata")
    traveller = watch(context.new_page(), site).arrive()
    traveller.open("/history/")
    stamp = traveller.page.locator("tbody time").first
    local = stamp.inner_text()
    traveller.page.click("[data-zone-toggle]")
    utc = stamp.inner_text()
    assert local != utc
    assert traveller.page.inner_text("[data-zone-toggle]") == "UTC"
    traveller.open("/history/")
    assert stamp.inner_text() == utc
    context.close()


def test_a_chart_draws_its_threshold_and_says_itself_in_words(operator: Watched) -> None:
    operator.open("/rollouts/1/")
    wait_for_charts(operator)
    names = operator.page.evaluate(
        "document.querySelector('[data-chart=evidence] [data-plot]').data.map((t) => t.name)"
    )
    assert "rollback at (latency)" in names
    label = operator.page.get_attribute("[data-chart=evidence] [data-plot]", "aria-label")
    assert label is not None
    assert "latency" in label
    operator.page.click("[data-chart=evidence] summary")
    assert operator.page.locator("[data-chart=evidence] tbody tr").count() > 5


def test_the_words_of_markers_lay_on_each_other_where_decisions_were_close(
    operator: Watched,
) -> None:
    operator.open("/models/llama-3-8b/?range=24h")
    wait_for_charts(operator)
    plot = "[data-chart=arm_rate] [data-plot]"
    lines = operator.page.evaluate(f"document.querySelector('{plot}').layout.shapes.length")
    boxes = operator.page.evaluate(
        f"""[...document.querySelectorAll('{plot} .annotation-text')]
              .map((text) => text.getBoundingClientRect())
              .map((box) => [box.left, box.right]).sort((a, b) => a[0] - b[0])"""
    )
    assert lines > len(boxes) >= 1
    for (_, right), (left, _) in itertools.pairwise(boxes):
        assert right <= left
