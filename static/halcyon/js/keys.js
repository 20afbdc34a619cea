// The keyboard: ? help, / find, g then a letter for a page, j and k rows, Enter opens, p pauses.

import { isPaused, setPaused } from "./live.js";

const WAIT_MS = 1200; // for the letter after g
let waiting = 0;

const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

function rows() {
  return [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
}

function step(by) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.findIndex((row) => row.classList.contains("at-hand"));
  const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + by))];
  all[now]?.classList.remove("at-hand");
  next.classList.add("at-hand");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

function open() {
  document.querySelector(".at-hand a")?.click();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) {
    if (event.key === "Escape") event.target.blur?.();
    return;
  }
  const help = document.getElementById("help");
  if (help.open) return;
  if (Date.now() - waiting < WAIT_MS) {
    waiting = 0;
    const link = document.querySelector(`.rail a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  const does = {
    "?": () => help.showModal(),
    "/": () => document.querySelector("[data-find]").focus(),
    g: () => { waiting = Date.now(); },
    j: () => step(1),
    k: () => step(-1),
    p: () => setPaused(!isPaused()),
  }[event.key];
  if (does) {
    event.preventDefault();
    does();
  } else if (event.key === "Enter" && document.activeElement === document.body) open();
}

export function startKeys() {
  document.addEventListener("keydown", press);
  document.querySelector("[data-help]")?.addEventListener("click", () => document.getElementById("help").showModal());
}
