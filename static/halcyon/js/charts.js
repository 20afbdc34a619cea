// Charts: a skeleton from the server, arrays from the page's documents, colours from the theme.
//
// Drawing one chart takes some 20 ms. Each is a task of its own, and an update draws one live
// chart, each in its turn: five minutes move by a pixel a second, which nobody misses for three.

import { inUtc } from "./clock.js";
import { colorOf } from "./theme.js";

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false };
const LETTER_PX = 5.4; // of a marker's words
const LIVE_POINTS = 300;
const LIVE_SPAN_MS = 300000;
const queue = [];
let drawing = false;
let current = null;

const later = window.scheduler?.postTask
  ? (work) => window.scheduler.postTask(work, { priority: "background" })
  : (work) => setTimeout(work, 0);

function enqueue(chart) {
  if (!queue.includes(chart)) queue.push(chart);
  if (!drawing) {
    drawing = true;
    later(drain);
  }
}

function drain() {
  const chart = queue.shift();
  if (chart === undefined) {
    drawing = false;
    return;
  }
  try {
    chart.draw();
  } finally {
    later(drain);
  }
}

function themed(value) {
  if (typeof value === "string") return value.startsWith("var(") ? colorOf(value) : value;
  if (Array.isArray(value)) return value.map(themed);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
  return value;
}

// Plotly shows dates as they are written: shift them into the zone that the person reads.
const written = (ms) => (inUtc() ? ms : ms - new Date(ms).getTimezoneOffset() * 60000);

class Chart {
  constructor(figure, series, live) {
    this.root = figure;
    this.name = figure.dataset.chart;
    this.plot = figure.querySelector("[data-plot]");
    this.skeleton = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    this.live = live;
    this.series = series;
    this.markers = series.markers ?? [];
  }

  push(point, at) {
    if (!this.live || !this.series.t) return;
    const series = this.series;
    if (series.t.at(-1) >= at) return;
    series.t.push(at);
    for (const trace of this.skeleton.data) {
      const key = trace.meta;
      const value = point[key];
      if (series[key] === undefined) {
        if (value === undefined) continue;
        series[key] = new Array(series.t.length - 1).fill(trace.stackgroup ? 0 : null);
      }
      series[key].push(value ?? (trace.stackgroup && point.t ? 0 : null));
    }
    const oldest = at - LIVE_SPAN_MS;
    while (series.t.length > LIVE_POINTS || series.t[0] < oldest) {
      series.t.shift();
      for (const trace of this.skeleton.data) series[trace.meta]?.shift();
    }
  }

  traces() {
    const times = this.series.t?.map(written);
    return this.skeleton.data
      .filter((trace) => this.series[trace.meta]?.some((value) => value !== null))
      .map((trace) => ({
        ...themed(trace),
        x: times ?? this.series[`${trace.meta}.x`] ?? this.series.x,
        y: this.series[trace.meta],
        ...(this.series[`${trace.meta}.text`] ? { text: this.series[`${trace.meta}.text`] } : {}),
      }));
  }

  layout() {
    const layout = themed(this.skeleton.layout);
    layout.width = this.plot.clientWidth;
    layout.height = this.plot.clientHeight;
    layout.font.family = getComputedStyle(document.body).fontFamily;
    if (this.live && this.series.t?.length) {
      const newest = this.series.t.at(-1);
      layout.xaxis.range = [written(newest - LIVE_SPAN_MS), written(newest)];
    }
    layout.shapes = [...(layout.shapes ?? []), ...this.markers.map((marker) => ({
      type: "line", x0: written(marker.t), x1: written(marker.t), yref: "paper", y0: 0, y1: 1,
      line: { color: colorOf("var(--canary)"), width: 1, dash: "2px,3px" },
    }))];
    layout.annotations = this.legible().map((marker) => ({
      x: written(marker.t), y: 1, yref: "paper", text: marker.text, showarrow: false, yanchor: "top", xanchor: "left", xshift: 2,
      font: { size: 10, color: colorOf("var(--canary-text)") },
    }));
    return layout;
  }

  // Markers whose words do not lie on those of a newer one. Every marker has its line.
  legible() {
    const times = this.series.t ?? [];
    const perMs = this.plot.clientWidth / (times.at(-1) - times[0] || 1);
    let free = Infinity;
    return this.markers.toReversed().filter((marker) => {
      const x = (marker.t - times[0]) * perMs;
      if (x + LETTER_PX * (marker.text.length + 1) > free) return false;
      free = x;
      return true;
    });
  }

  draw() {
    if (!this.root.isConnected || !window.Plotly || this.plot.clientWidth === 0) return;
    const traces = this.traces();
    const filled = traces.length > 0;
    this.root.dataset.has = filled ? "yes" : "no";
    const empty = this.root.querySelector(":scope > [data-empty]");
    if (empty) empty.hidden = filled;
    window.Plotly.react(this.plot, traces, this.layout(), CONFIG);
    this.label();
  }

  label() {
    const shown = new Set(this.plot.data.map((trace) => trace.meta));
    const legend = this.root.querySelector(".legend");
    const present = new Set([...legend.children].map((item) => item.dataset.series));
    for (const trace of this.plot.data) {
      if (present.has(trace.meta) || !trace.name) continue;
      const item = document.createElement("li");
      item.dataset.series = trace.meta;
      const swatch = document.createElement("i");
      swatch.style.setProperty("--swatch", trace.fillcolor ?? trace.line?.color ?? trace.marker?.color);
      item.append(swatch, trace.name);
      legend.append(item);
    }
    for (const item of legend.children) item.hidden = shown.size > 0 && !shown.has(item.dataset.series);
  }

  // The text equivalent, for whoever cannot see the picture.
  describe() {
    const parts = [];
    for (const trace of this.skeleton.data) {
      const last = this.series[trace.meta]?.findLast((value) => value !== null && value !== undefined);
      if (last !== undefined) parts.push(`${trace.name} ${Number(last).toLocaleString("en-GB", { maximumFractionDigits: 1 })}`);
    }
    const title = this.root.querySelector("h2").textContent.trim().replace(/\s+/g, " ");
    const text = parts.length ? `${title}: ${parts.join("; ")}.` : `${title}: no data.`;
    this.plot.setAttribute("aria-label", text);
    this.root.querySelector("[data-summary]").textContent = text;
  }
}

// What could not be asked for three times in a row is old, and says so.
function grow(charts, page) {
  const period = Number(page.main.dataset.refresh) * 1000;
  const age = Date.now() - (page.refreshed ?? page.at);
  if (age <= 3 * period) return;
  for (const chart of charts) {
    if (!chart.live) chart.root.querySelector("figcaption").dataset.old = `${Math.round(age / 1000)} s old`;
  }
}

async function refresh(charts, page) {
  if (document.hidden || current?.page !== page) return;
  const query = new URLSearchParams(page.params);
  query.set("topic", page.topic);
  const answer = await fetch(`/charts/?${query}`, { headers: { accept: "application/json" } }).catch(() => null);
  if (current?.page !== page) return;
  if (!answer?.ok) {
    grow(charts, page);
    return;
  }
  page.refreshed = Date.now();
  const fresh = await answer.json();
  for (const chart of charts) {
    delete chart.root.querySelector("figcaption").dataset.old;
    chart.series = fresh.charts[chart.name] ?? {};
    chart.markers = chart.series.markers ?? [];
    enqueue(chart);
  }
}

export function startCharts(page) {
  clearInterval(current?.timer);
  const live = page.main.dataset.range === "5m";
  const charts = [...page.main.querySelectorAll("[data-chart]")].map((figure) => {
    const own = page.once.charts?.[figure.dataset.chart];
    const shared = own ?? structuredClone(page.once.series ?? {});
    return new Chart(figure, shared, live && own === undefined);
  });
  current = { page, charts, timer: 0 };
  const moving = charts.filter((chart) => chart.live);
  let turn = 0;
  const drawAll = () => charts.forEach(enqueue);
  if (window.Plotly) drawAll();
  else window.addEventListener("load", drawAll, { once: true });
  const period = Number(page.main.dataset.refresh ?? 0);
  if (period > 0) current.timer = setInterval(() => refresh(charts, page), period * 1000);
  page.onChange((changed, patch) => {
    if (patch?.stamp) refresh(charts, page); // a rollout was judged: its charts have a new point
    for (const chart of charts) {
      if (patch === null) {
        const own = changed.once.charts?.[chart.name];
        if (own) chart.series = own;
        else if (chart.live) chart.series = structuredClone(changed.once.series ?? {});
        chart.markers = chart.series.markers ?? [];
      } else chart.push(changed.doc.point ?? {}, changed.at);
      if (patch === null) enqueue(chart);
    }
    if (patch !== null && moving.length > 0) {
      turn = (turn + 1) % moving.length;
      enqueue(moving[turn]);
    }
  });
}

let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => current?.charts.forEach(enqueue), 150);
});
document.addEventListener("halcyon:theme", () => current?.charts.forEach(enqueue));
document.addEventListener("halcyon:zone", () => current?.charts.forEach(enqueue));
setInterval(() => current?.charts.forEach((chart) => chart.describe()), 10000);
