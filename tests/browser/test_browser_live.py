"""Pages that live: numbers move and match the API, staleness is said, nothing jumps."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, WebSocketRoute, expect

from tests.browser.conftest import Site, Watched, watch
from tests.browser.door import Door

pytestmark = pytest.mark.xdist_group("browser")

TILE = "[data-live='tiles.offered.value']"


@pytest.fixture(scope="module", autouse=True)
def playing(site: Site) -> Iterator[None]:
    site.play()
    yield
    site.silence()


def test_numbers_move_and_match_the_api(operator: Watched) -> None:
    page = operator.open("/")
    operator.until_live()
    seen: set[str] = set()
    page.wait_for_function(
        "s => !['–', ''].includes(document.querySelector(s).textContent)", arg=TILE
    )
    deadline = 12
    while len(seen) < 3 and deadline:
        deadline -= 1
        now = page.inner_text(TILE)
        seen.add(now)
        page.wait_for_function(
            "([s, old]) => document.querySelector(s).textContent !== old", arg=[TILE, now]
        )
    assert len(seen) >= 3
    matched = page.evaluate(
        """async (selector) => {
             for (let attempt = 0; attempt < 10; attempt += 1) {
               const answer = await fetch('/v1/control/state');
               const state = await answer.json();
               const traffic = (state.traffic ?? state.live?.traffic);
               const shown = document.querySelector(selector).textContent;
               if (Math.abs(Number(shown) - traffic.offeredPerS) <= 0.5) return true;
               await new Promise((resolve) => setTimeout(resolve, 300));
             }
             return false;
           }""",
        TILE,
    )
    assert matched
    assert operator.problems() == []


def test_when_the_only_gateway_dies_the_page_says_how_old_it_is_and_dims(
    operator: Watched, site: Site
) -> None:
    page = operator.open("/")
    operator.until_live()
    expect(page.locator("[data-live='shell.line']")).to_contain_text("served in time")
    site.silence()
    banner = page.locator('[data-banner="feed"]')
    expect(banner).to_contain_text("fell silent", timeout=20_000)
    expect(page.locator("main")).to_have_attribute("data-feed", "stale")
    assert page.inner_text(TILE) != "–"
    site.play()
    expect(banner).to_be_hidden(timeout=20_000)
    expect(page.locator("main")).to_have_attribute("data-feed", "live")


def test_one_gateway_lost_greys_its_part_and_the_rest_goes_on(
    operator: Watched, site: Site
) -> None:
    second = site.play("--gateways", "gateway-b")
    page = operator.open("/engine/")
    operator.until_live()
    rows = page.locator('[data-table="gateways"] tbody tr')
    expect(rows).to_have_count(2, timeout=20_000)
    second.kill()
    second.wait()
    lost = page.locator('[data-row="gateway-b"] .status')
    expect(lost).to_have_attribute("data-word", "down", timeout=20_000)
    expect(page.locator('[data-banner="feed"]')).to_contain_text("Lost: gateway-b")
    expect(page.locator('[data-row="gateway-a"] .status')).to_have_attribute("data-word", "healthy")
    assert site.play("--farewell", "--gateways", "gateway-b").wait(30) == 0
    expect(rows).to_have_count(1)


def test_pausing_stops_the_numbers_and_resuming_shows_the_present(operator: Watched) -> None:
    page = operator.open("/")
    operator.until_live()
    page.keyboard.press("p")
    expect(page.locator("[data-link-word]")).to_have_text("paused")
    expect(page.locator("[data-pause]")).to_have_text("Resume")
    held = page.inner_text(".tiles")
    page.wait_for_timeout(2500)  # nothing to wait for: the point is that nothing happens
    assert page.inner_text(".tiles") == held
    page.click("[data-pause]")
    operator.until_live()
    page.wait_for_function("([s, old]) => document.querySelector(s).innerText !== old",
                           arg=[".tiles", held])  # fmt: skip


def test_a_table_does_not_reorder_under_the_pointer(operator: Watched) -> None:
    page = operator.open("/fleet/?sort=p95")
    operator.until_live()
    table = page.locator('[data-table="replicas"]')
    table.locator("tbody tr").first.hover()
    read = """() => [...document.querySelectorAll('[data-table=replicas] [data-row]')]
                        .map((row) => row.dataset.row)"""
    before = page.evaluate(read)
    cells = "() => document.querySelector('[data-table=replicas] tbody').innerText"
    text = page.evaluate(cells)
    for _ in range(3):  # numbers go on under the pointer
        page.wait_for_function(f"(old) => ({cells})() !== old", arg=text)
        text = page.evaluate(cells)
    assert page.evaluate(read) == before


def test_filters_work_without_leaving_the_page_and_stay_in_the_url(operator: Watched) -> None:
    page = operator.open("/fleet/")
    operator.until_live()
    page.fill("main input[name=q]", "h100")
    expect(page.locator('[data-table="replicas"] tbody tr')).to_have_count(1)
    assert "q=h100" in page.url
    now = page.inner_text("[data-row=llama-h100-1] [data-cell=p95]")
    cell = "[data-row=llama-h100-1] [data-cell=p95]"
    page.wait_for_function(
        "([s, old]) => document.querySelector(s).textContent !== old", arg=[cell, now]
    )
    assert operator.problems() == []


def test_the_keyboard_leads_everywhere(operator: Watched) -> None:
    page = operator.open("/")
    operator.until_live()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("[data-find]")).to_be_focused()
    page.keyboard.type("llama-t4")
    page.keyboard.press("Enter")
    page.wait_for_url("**/fleet/llama-t4-1/")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/fleet/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    first = page.locator('[data-table="replicas"] tbody tr').first
    expect(first.locator("a").first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/fleet/*/")
    for key, path in (("o", "/"), ("m", "/models/"), ("r", "/rollouts/"), ("t", "/tenants/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(operator.site.url + path)  # `**/` would match where it still is


def test_a_lost_connection_counts_down_keeps_the_data_and_comes_back(
    site: Site, chromium: Browser
) -> None:
    context = chromium.new_context()
    with Door(site.url) as door:
        watched = watch(context.new_page(), Site(door.url, site.environment)).arrive()
        page = watched.open("/")
        watched.until_live()
        expect(page.locator(TILE)).not_to_have_text("–", timeout=20_000)
        door.shut()
        banner = page.locator('[data-banner="link"]')
        expect(banner).to_contain_text("The connection is lost. Trying again in", timeout=20_000)
        expect(page.locator("main")).to_have_class("stale")
        assert page.inner_text(TILE) != "–"
        door.open()
        watched.until_live()
        expect(banner).to_be_hidden()
        expect(page.locator("main")).not_to_have_class("stale")
        context.close()


def test_a_lost_message_is_asked_for_silence_is_said_and_a_hidden_tab_asks_for_nothing(
    operator: Watched,
) -> None:
    page = operator.page
    said: list[str] = []
    lose = ["a delta"]
    hold: list[list[tuple[WebSocketRoute, str | bytes]]] = []

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def up(text: str | bytes) -> None:
            said.append(str(json.loads(text)["do"]))
            server.send(text)

        def down(text: str | bytes) -> None:
            if hold:
                hold[0].append((socket, text))
            elif lose and json.loads(text)["t"] == "delta":
                lose.clear()
            else:
                socket.send(text)

        socket.on_message(up)
        server.on_message(down)

    def until_said(verb: str) -> None:
        for _ in range(600):
            if verb in said:
                return
            page.wait_for_timeout(50)
        raise AssertionError(f"the page did not say {verb}: {said}")

    page.route_web_socket("**/ws/live/", relay)
    operator.open("/")
    operator.until_live()
    until_said("snapshot")
    hold.append([])
    expect(page.locator("[data-link-word]")).to_contain_text("s old", timeout=20_000)
    expect(page.locator("main")).to_have_class("stale")
    expect(page.locator('[data-banner="link"]')).to_contain_text("the numbers below are as of")
    for socket, text in hold.pop():
        socket.send(text)
    operator.until_live()
    hide = """(hidden) => {
      Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    until_said("pause")
    said.clear()
    page.evaluate(hide, False)
    until_said("resume")
    operator.until_live()
    expect(page.locator('[data-banner="link"]')).to_be_hidden()
    expect(page.locator("main")).not_to_have_class("stale")


def test_a_viewer_watches_and_is_offered_no_action(visitor: Watched) -> None:
    page = visitor.arrive("vera").page
    for path in ("/fleet/llama-a100-1/", "/rollouts/1/", "/rollouts/", "/requests/"):
        visitor.open(path)
        assert page.locator("main form[method=post]").count() == 0
        assert page.locator("[data-opens]").count() == 0


def test_draining_is_confirmed_with_its_consequence_and_shows_at_once(operator: Watched) -> None:
    page = operator.open("/fleet/llama-a100-1/")
    operator.until_live()
    page.click("text=Drain…")
    dialog = page.locator("dialog#drain")
    expect(dialog).to_contain_text("must carry all of its")
    dialog.locator("button.grave").click()
    expect(dialog).to_be_visible()  # a reason is required
    dialog.locator("textarea").fill("new driver")
    dialog.locator("button.grave").click()
    expect(page.locator(".banner.said")).to_contain_text("drains")
    page.click("text=Put back in service…")
    page.fill("#undrain-reason", "driver is in")
    page.click("dialog#undrain button[type=submit]")
    expect(page.locator(".banner.said")).to_contain_text("back in service")


def test_signing_out_ends_what_the_page_shows(visitor: Watched) -> None:
    page = visitor.sign_in("otto")
    visitor.until_live()
    page.click(".who summary")
    page.click("text=Sign out")
    page.wait_for_url("**/sign-in/**")
    visitor.open("/")
    assert "/sign-in/" in page.url
