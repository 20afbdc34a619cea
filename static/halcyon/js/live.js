// The live connection. The server sends a snapshot, then numbered patches; a missing number
// asks for a snapshot. Each message is acknowledged once drawn, so a slow browser is sent the
// newest state and never a backlog. A lost connection counts down to the next attempt, in the
// open; what was known stays on the page, marked as the past.

import { inUtc } from "./clock.js";

const FIRST_RETRY_S = 1;
const LONGEST_RETRY_S = 15;
const STALE_MS = 3000; // three periods

const SIGNED_OUT = 4401;

let socket = null;
let page = null;
let expected = 1;
let attempts = 0;
let countdown = null;
let paused = false;
let lastHeard = Date.now();

const heardAt = () => new Date(lastHeard).toLocaleTimeString("en-GB", { timeZone: inUtc() ? "UTC" : undefined });

const main = () => document.getElementById("main");
const say = (message) => {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
};

function show(state, word) {
  const link = document.querySelector("[data-link]");
  if (!link) return;
  link.dataset.state = state;
  link.querySelector("[data-link-word]").textContent = word;
}

function banner(text) {
  const element = document.querySelector('[data-banner="link"]');
  element.hidden = text === "";
  if (element.textContent !== text) element.textContent = text;
}

function watch() {
  expected = 1;
  say({ do: "watch", topic: page.topic, params: page.params });
}

function take(text) {
  const message = JSON.parse(text);
  lastHeard = Date.now();
  if (message.t === "snapshot") page.snapshot(message.at, message.doc, message.once);
  else if (message.seq === expected) page.patch(message.at, message.patch);
  else say({ do: "snapshot" });
  expected = message.seq + 1;
  requestAnimationFrame(() => say({ do: "ack", seq: message.seq }));
  main().classList.remove("stale");
  banner("");
  show(paused ? "paused" : "live", paused ? "paused" : "live");
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(`${scheme}//${location.host}/ws/live/`);
  socket.addEventListener("open", () => {
    attempts = 0;
    lastHeard = Date.now();
    banner("");
    if (!paused && !document.hidden) watch();
    else show("paused", "paused");
  });
  socket.addEventListener("message", (event) => take(event.data));
  socket.addEventListener("close", (event) => lose(event.code));
}

function lose(code) {
  if (code === SIGNED_OUT) {
    show("lost", "signed out");
    banner("You are signed out. Reload the page to sign in again; what you see is the past.");
    main().classList.add("stale");
    return;
  }
  attempts += 1;
  let left = Math.min(FIRST_RETRY_S * 2 ** (attempts - 1), LONGEST_RETRY_S);
  main().classList.add("stale");
  show("lost", "lost");
  const tell = () => banner(`The connection is lost. Trying again in ${left} s; the numbers below are as of ${heardAt()}.`);
  tell();
  clearInterval(countdown);
  countdown = setInterval(() => {
    left -= 1;
    if (left > 0) {
      tell();
      return;
    }
    clearInterval(countdown);
    banner("The connection is lost. Trying now…");
    connect();
  }, 1000);
}

export function setPaused(value) {
  paused = value;
  const button = document.querySelector("[data-pause]");
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Resume" : "Pause";
  if (paused) {
    say({ do: "pause" });
    show("paused", "paused");
  } else {
    lastHeard = Date.now();
    watch();
    say({ do: "resume" });
  }
}

export const isPaused = () => paused;

export function startLive(newPage) {
  page = newPage;
  if (socket !== null) {
    if (!paused) watch();
    return;
  }
  document.querySelector("[data-pause]").addEventListener("click", () => setPaused(!paused));
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) say({ do: "pause" });
    else {
      lastHeard = Date.now();
      say({ do: "resume" });
      watch();
    }
  });
  setInterval(() => {
    const age = Date.now() - lastHeard;
    if (paused || document.hidden || age <= STALE_MS || socket?.readyState !== WebSocket.OPEN) return;
    main().classList.add("stale");
    show("late", `${Math.round(age / 1000)} s old`);
    banner(`Nothing was heard for ${Math.round(age / 1000)} s: the numbers below are as of ${heardAt()}.`);
  }, 1000);
  connect();
}
