// Times: <time data-at="Unix ms"> in local time or UTC, as the person chose.

const root = document.documentElement;
const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

const makeFormats = () => {
  const timeZone = root.dataset.zone === "utc" ? "UTC" : undefined;
  return {
    today: new Intl.DateTimeFormat("en-GB", { ...options, timeZone }),
    other: new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone }),
    whole: new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long", timeZone }),
  };
};
let formats = makeFormats();

export const inUtc = () => root.dataset.zone === "utc";

export function stamp(element) {
  const at = Number(element.dataset.at);
  if (!element.dataset.at || !Number.isFinite(at)) {
    element.textContent = "";
    return;
  }
  const moment = new Date(at);
  const near = Math.abs(Date.now() - at) < 12 * 3600e3;
  element.dateTime = moment.toISOString();
  element.textContent = (near ? formats.today : formats.other).format(moment);
  element.title = formats.whole.format(moment);
}

export function stampAll(within = document) {
  for (const element of within.querySelectorAll("time[data-at]")) stamp(element);
}

// Seconds to an instant, which may pass without anything happening: that is said as well.
export function countDown(element) {
  const until = Number(element.dataset.until);
  const left = Math.ceil((until - Date.now()) / 1000);
  element.textContent = !element.dataset.until ? "–" : left > 0 ? `${left} s` : left > -5 ? "now" : `${-left} s late`;
}

export function startClock() {
  stampAll();
  setInterval(() => document.querySelectorAll("[data-until]").forEach(countDown), 1000);
  document.addEventListener("htmx:afterSwap", () => stampAll());
  const button = document.querySelector("[data-zone-toggle]");
  button?.addEventListener("click", () => {
    root.dataset.zone = inUtc() ? "local" : "utc";
    document.cookie = `halcyon_zone=${root.dataset.zone}; path=/; max-age=31536000; samesite=lax`;
    button.textContent = inUtc() ? "UTC" : "Local";
    formats = makeFormats();
    stampAll();
    document.dispatchEvent(new CustomEvent("halcyon:zone"));
  });
}
