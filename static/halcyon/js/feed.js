// The decision feed: new lines at the top, old ones leave at the bottom, none ever moves.

import { stamp } from "./clock.js";

function makeLine(id, line) {
  const item = document.createElement("li");
  item.dataset.line = id;
  item.dataset.kind = line.kind;
  item.className = "fresh";
  const time = document.createElement("time");
  time.dataset.at = line.at;
  stamp(time);
  const badge = document.createElement("span");
  badge.className = "badge";
  badge.dataset.value = badge.textContent = line.kind;
  const link = document.createElement("a");
  link.href = line.href;
  link.textContent = line.subject;
  const what = document.createElement("span");
  what.className = "what";
  what.textContent = line.text;
  const numbers = document.createElement("small");
  numbers.textContent = line.numbers;
  item.append(time, badge, link, what, numbers);
  return item;
}

export function renderFeed(feed, changed) {
  const list = document.querySelector("[data-feed-list]");
  if (!list || !feed || !changed) return;
  const present = new Map([...list.children].map((item) => [item.dataset.line, item]));
  const wanted = new Set(feed.order);
  for (const [id, item] of present) if (!wanted.has(id)) item.remove();
  for (const id of [...feed.order].reverse()) {
    if (!present.has(id)) list.prepend(makeLine(id, feed.rows[id]));
  }
  const empty = document.querySelector("[data-feed-empty]");
  if (empty) empty.hidden = feed.order.length > 0;
}
