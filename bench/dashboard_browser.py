"""What an update costs a browser: each page in Chromium, its main thread measured by itself."""

import shutil
from typing import Any

from playwright.sync_api import BrowserContext, sync_playwright

from bench.dashboard_site import PAGES, DashboardSite
from bench.progress import Task
from tests.browser.persons import session_key

LONG_TASKS = """() => {
  window.longTasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
  }).observe({ entryTypes: ["longtask"] });
}"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def watch_in_chromium(
    site: DashboardSite, duration_s: float, task: Task
) -> list[dict[str, object]]:
    """A row for each page, watched for `duration_s`."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise RuntimeError("Chromium is needed: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        context = chromium.new_context(viewport={"width": 1440, "height": 1000})
        context.add_cookies([{"name": "sessionid", "value": session_key("otto"), "url": site.url}])
        rows = []
        for page, path in PAGES.items():
            task.say(f"Chromium watches {page}")
            rows.append(_watched(context, site.url + path, page, duration_s))
            task.advance()
        chromium.close()
    return rows


def _watched(context: BrowserContext, url: str, name: str, duration_s: float) -> dict[str, object]:
    page = context.new_page()
    heard: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda said: heard.append("")))
    page.goto(url)
    page.wait_for_selector('[data-link][data-state="live"]', timeout=60_000)
    page.wait_for_timeout(3000)  # the first drawing of the charts is not an update
    page.evaluate(LONG_TASKS)
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # not what others take
    before, updates = _metrics(devtools), len(heard)
    page.wait_for_timeout(duration_s * 1000)
    after, updates = _metrics(devtools), len(heard) - updates
    long: list[float] = page.evaluate("window.longTasks")
    page.close()
    return {
        "page": name,
        "updates": updates,
        "main_thread_ms": _each(after, before, "TaskDuration", updates),
        "script_ms": _each(after, before, "ScriptDuration", updates),
        "long_tasks": len(long),
        "longest_ms": max(long, default=None),
    }


def _metrics(devtools: Any) -> dict[str, float]:
    said = devtools.send("Performance.getMetrics")
    return {entry["name"]: entry["value"] for entry in said["metrics"]}


def _each(
    after: dict[str, float], before: dict[str, float], name: str, updates: int
) -> float | None:
    return (after[name] - before[name]) * 1000 / updates if updates else None
