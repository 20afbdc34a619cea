"""A rollout from the page: previewed, started, watched, paused, aborted."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Watched

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module", autouse=True)
def playing(site: Site) -> Iterator[None]:
    site.play()
    yield
    site.silence()


def the_judged_rollout_shows_its_ladder_guards_and_decisions(operator: Watched) -> None:
    page = operator.open("/rollouts/1/")
    operator.until_live()
    states = [li.get_attribute("data-state") for li in page.locator(".ladder li").all()]
    assert states == ["done", "done", "now", "ahead", "ahead"]
    expect(page.locator("[data-live='last.reason']")).to_have_text("capacity limited")
    expect(page.locator("[data-live=change]")).to_contain_text("2 ready replicas of v2")
    expect(page.locator("[data-row=latency] [data-cell=limit]")).to_have_text("5.30")
    page.locator('[data-table="decisions"] tbody a').first.click()
    page.wait_for_url("**/rollouts/1/26/")
    assert '"digest"' in page.inner_text("pre")
    page.click("text=Previous")
    page.wait_for_url("**/rollouts/1/25/")


def an_operator_pauses_resumes_aborts_and_starts_anew(operator: Watched) -> None:
    page = operator.open("/rollouts/1/")
    page.click("text=Pause…")
    page.fill("#act-pause-reason", "waiting for the second replica")
    page.click("#act-pause button[type=submit]")
    expect(page.locator("[data-live='phase.text']")).to_have_text("paused")
    page.click("text=Resume…")
    page.fill("#act-resume-reason", "it is there")
    page.click("#act-resume button[type=submit]")
    expect(page.locator("[data-live='phase.text']")).to_have_text("progressing")
    page.click("text=Abort…")
    expect(page.locator("#act-abort .consequence")).to_contain_text("Moves 25 % of traffic")
    page.fill("#act-abort-reason", "it was the wrong build")
    page.click("#act-abort button[type=submit]")
    expect(page.locator("[data-live='phase.text']")).to_have_text("aborted")
    assert page.locator("[data-opens]").count() == 0

    page = operator.open("/rollouts/start/?model=llama-3-8b")
    page.fill("#id_version", "v2")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("1% of sessions", timeout=15_000)
    expect(preview).to_contain_text("1 ready replica")
    page.fill("#id_steps", "25, 5")
    page.keyboard.press("Tab")
    expect(preview).to_contain_text("must ascend", timeout=15_000)
    page.fill("#id_reason", "the right build")
    page.click("button[type=submit]:has-text('Start')")
    expect(page.locator(".errorlist").first).to_contain_text("must ascend")
    page.fill("#id_steps", "2, 20, 100")
    page.click("button[type=submit]:has-text('Start')")
    page.wait_for_url("**/rollouts/2/")
    assert page.locator(".ladder li").count() == 3
    expect(page.locator("[data-live='last.text']")).to_have_text(
        "The first window is not judged yet."
    )
    operator.open("/history/")
    said = page.inner_text("main tbody")
    for words in ("rollout.started", "rollout.aborted", "it was the wrong build", "otto"):
        assert words in said
    expect(page.locator("main")).to_contain_text("The chain is intact")
    # the refused start above is answered 422, which Chromium tells on its console
    assert [said for said in operator.problems() if "422" not in said] == []


def somebody_elses_abort_shows_on_a_page_that_is_open(operator: Watched) -> None:
    page = operator.open("/rollouts/")
    operator.until_live()
    row = page.locator('[data-table="rollouts"] tbody tr')
    expect(row).to_have_count(1)
    other = operator.page.context.new_page()
    other.goto(f"{operator.site.url}/rollouts/2/")
    other.click("text=Abort…")
    other.fill("#act-abort-reason", "seen enough")
    other.click("#act-abort button[type=submit]")
    expect(row).to_have_count(0, timeout=15_000)
    other.close()


def test_a_rollout_is_read_paused_resumed_aborted_started_anew_and_aborted_by_another(
    operator: Watched,
) -> None:
    the_judged_rollout_shows_its_ladder_guards_and_decisions(operator)
    an_operator_pauses_resumes_aborts_and_starts_anew(operator)
    somebody_elses_abort_shows_on_a_page_that_is_open(operator)


def test_starting_what_cannot_work_says_why_at_its_field(operator: Watched) -> None:
    page = operator.open("/rollouts/start/?model=llama-3-8b")
    page.fill("#id_version", "v9")
    page.fill("#id_reason", "a try")
    page.click("button[type=submit]:has-text('Start')")
    expect(page.locator(".errorlist").first).to_contain_text("no such version")
    page.fill("#id_version", "v1")
    page.click("button[type=submit]:has-text('Start')")
    expect(page.locator(".errorlist").first).to_contain_text("stable version already")
