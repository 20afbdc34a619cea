"""A fresh installation: pages say what they wait for, and the command that would bring it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Site, Watched, served, watch
from tests.conftest import ScratchDatabase

pytestmark = pytest.mark.xdist_group("browser")

EMPTY_BROKER = 10  # no gateway of another module speaks there


@pytest.fixture(scope="module")
def bare(
    module_database: ScratchDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    web = tmp_path_factory.mktemp("web")
    with served(module_database, web, broker=EMPTY_BROKER, past=("people",)) as made:
        yield made


@pytest.fixture
def newcomer(bare: Site, chromium: Browser) -> Iterator[Watched]:
    context = chromium.new_context()
    watched = watch(context.new_page(), bare).arrive()
    yield watched
    context.close()


def test_each_page_names_the_command_that_would_bring_data(newcomer: Watched) -> None:
    for path, command in (
        ("/", "manage.py loadtest"),
        ("/models/", "manage.py replicas apply FILE"),
        ("/fleet/", "manage.py replica --model MODEL"),
        ("/rollouts/", "manage.py rollout start"),
        ("/tenants/", "manage.py tenant create NAME"),
        ("/requests/", "manage.py loadtest"),
        ("/engine/", "manage.py gateway"),
    ):
        page = newcomer.open(path)
        assert command in page.inner_text("main")
        expect(page.locator("[data-banner=feed]")).to_contain_text("manage.py gateway")
    assert newcomer.problems() == []


def test_nothing_is_shown_as_zero_before_anybody_spoke(newcomer: Watched) -> None:
    page = newcomer.open("/")
    newcomer.until_live()
    for tile in ("goodput", "offered", "refused", "p95", "in_flight"):
        assert page.inner_text(f"[data-live='tiles.{tile}.value']") == "–"


def test_the_first_gateway_that_speaks_fills_the_page(newcomer: Watched, bare: Site) -> None:
    page = newcomer.open("/")
    newcomer.until_live()
    bare.play()
    rows = page.locator('[data-table="attention"] tbody tr')
    expect(rows).to_have_count(6, timeout=20_000)
    expect(page.locator("[data-banner=feed]")).to_be_hidden()
    bare.silence()


def test_a_missing_page_helps_on(newcomer: Watched) -> None:
    page = newcomer.open("/fleet/nobody/")
    assert "No replica nobody is registered" in page.inner_text("main")
    page.click("text=Overview")
    page.wait_for_selector("main[data-topic=overview]")
