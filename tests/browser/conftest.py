"""A real browser before a real web process: daphne, PostgreSQL, Valkey, Chromium.

`site` has the whole fixed past and gateways that play: one web process for the run. A module
that stops its gateways starts them again, and one that adds a gateway sees it off. Everything
in this folder runs in one xdist worker, so that a run has one Chromium; a module has its own,
because Playwright's event loop must not outlive it.
"""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    sync_playwright,
)

from bench.children import end
from tests.browser.persons import PASSWORD_FOR_TESTS as PASSWORD
from tests.browser.persons import session_key
from tests.conftest import ScratchDatabase

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                  "--force-color-profile=srgb", "--font-render-hinting=none",
                  "--disable-partial-raster"]  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Each module in its own order: its tests share a web process that remembers which gateways
    it heard. (Each module also says `xdist_group("browser")`: one Chromium at a time.)"""
    yield
    mine = [item for item in items if HERE in item.path.parents]
    places = [place for place, item in enumerate(items) if item in mine]
    mine.sort(key=lambda item: (item.path.name, item.reportinfo()[1] or 0))
    for place, item in zip(places, mine, strict=True):
        items[place] = item


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def own_broker(url: str, number: int) -> str:
    """The run's Valkey, with a number of its own: other tests' gateways stay out of the feed."""
    if url.startswith("unix://"):
        return url + ("&" if "?" in url else "?") + f"db={number}"
    return re.sub(r"(/\d+)?$", f"/{number}", url)


@dataclass
class Site:
    """A web process and the gateways that play for it."""

    url: str
    environment: dict[str, str]
    stages: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def play(self, *options: str) -> "subprocess.Popen[bytes]":
        """Let gateways speak, until they are stopped."""
        stage = subprocess.Popen(
            [sys.executable, str(HERE / "stage.py"), *options], env=self.environment, cwd=ROOT
        )
        self.stages.append(stage)
        return stage

    def silence(self) -> None:
        """Kill every gateway: no farewell is said."""
        for stage in self.stages:
            stage.send_signal(signal.SIGKILL)
            stage.wait()
        self.stages.clear()


@contextmanager
def served(
    database: ScratchDatabase, tmp_path: Path, application: str = "halcyon_site.asgi:application",
    *, broker: int = 9, past: tuple[str, ...],
) -> Iterator[Site]:  # fmt: skip
    """A web process on a free port, ready to answer; `past` is what `prepare.py` is told,
    which works while the web process starts."""
    port = free_port()
    environment = {
        **database.environment,
        "VALKEY_URL": own_broker(database.environment["VALKEY_URL"], broker),
        "HALCYON_SECRET_KEY": "only-for-tests",
        "HALCYON_LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
    }
    preparing = subprocess.Popen(
        [sys.executable, str(HERE / "prepare.py"), *past], env=environment, cwd=ROOT
    )
    log = (tmp_path / f"web-{port}.log").open("wb")
    web = subprocess.Popen(
        [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "-v0", application],
        env=environment, cwd=ROOT, stdout=log, stderr=log,
    )  # fmt: skip
    site = Site(f"http://127.0.0.1:{port}", environment)
    try:
        assert preparing.wait(120) == 0, "the past could not be prepared"
        wait_until_served(site.url, web)
        yield site
    finally:
        site.silence()
        for process in (preparing, web):
            end(process, 10.0)
        log.close()


def wait_until_served(url: str, web: "subprocess.Popen[bytes]", within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert web.poll() is None, "the web process ended"
        try:
            with urllib.request.urlopen(f"{url}/sign-in/", timeout=10) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{url} did not answer within {within_s} s")


@pytest.fixture(scope="session")
def site(
    session_database: ScratchDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("web")
    with served(session_database, folder, past=("everything",)) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page whose console and requests are kept, so that a test can ask for silence."""

    page: Page
    site: Site
    said: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        self.page.goto(self.site.url + path)
        return self.page

    def arrive(self, name: str = "otto") -> "Watched":
        """Be somebody whose session `prepare.py` began: one test signs in by the form."""
        self.page.context.add_cookies(
            [{"name": "sessionid", "value": session_key(name), "url": self.site.url}]
        )
        return self

    def sign_in(self, name: str = "otto") -> Page:
        self.open("/sign-in/")
        self.page.fill("input[name=username]", name)
        self.page.fill("input[name=password]", PASSWORD)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("main[data-topic]")
        return self.page

    def problems(self) -> list[str]:
        """What a strict policy or a broken script would leave on the console."""
        return [*self.said, *self.failed]

    def until_live(self) -> None:
        self.page.wait_for_selector('[data-link][data-state="live"]', timeout=30_000)


def watch(page: Page, site: Site) -> Watched:
    watched = Watched(page, site)

    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            watched.said.append(f"{message.type}: {message.text}")

    def broken(request: Request) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):
            watched.failed.append(f"{request.url}: {request.failure}")

    page.on("console", console)
    page.on("pageerror", lambda error: watched.said.append(f"exception: {error}"))
    page.on("requestfailed", broken)
    return watched


@pytest.fixture
def visitor(site: Site, chromium: Browser) -> Iterator[Watched]:
    """Somebody with a fresh browser, not signed in."""
    context = chromium.new_context(
        viewport={"width": 1440, "height": 1000}, timezone_id="UTC", reduced_motion="reduce"
    )
    context.set_default_timeout(30_000)
    yield watch(context.new_page(), site)
    context.close()


@pytest.fixture(scope="module")
def signed_in_context(site: Site, chromium: Browser) -> Iterator[BrowserContext]:
    """One operator's browser for a module: signed in, plotly.js loaded once."""
    context = chromium.new_context(
        viewport={"width": 1440, "height": 1000}, timezone_id="UTC", reduced_motion="reduce"
    )
    context.set_default_timeout(30_000)
    page = context.new_page()
    watch(page, site).arrive("otto")
    page.close()
    yield context
    context.close()


@pytest.fixture
def operator(signed_in_context: BrowserContext, site: Site) -> Iterator[Watched]:
    """An operator, signed in, with a fresh tab."""
    page = signed_in_context.new_page()
    yield watch(page, site)
    page.close()
    for name in ("halcyon_theme", "halcyon_zone"):
        signed_in_context.clear_cookies(name=name)
