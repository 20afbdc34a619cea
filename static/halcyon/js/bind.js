// Values into elements. An element says what it shows: data-live="tiles.goodput.value".
// data-as says how (text by default); data-live-attr="path:name" sets data-name instead.

import { countDown } from "./clock.js";
import { renderFeed } from "./feed.js";
import { pushSpark, seedSparks } from "./spark.js";
import { renderTables } from "./tables.js";
import { applyPatch } from "./patch.js";

export const dig = (document, path) =>
  path.split(".").reduce((value, key) => (value === undefined || value === null ? undefined : value[key]), document);

const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "{}");

export function write(element, value, as) {
  const text = value === undefined || value === null ? "" : String(value);
  if (as === "status") element.dataset.word = text;
  else if (as === "badge") element.dataset.value = text;
  else if (as === "banner" || as === "optional") element.hidden = text === "";
  else if (as === "until") {
    element.dataset.until = text;
    countDown(element);
    return;
  } else if (as === "bar") {
    element.style.setProperty("--share", text || 0);
    const shown = text === "" ? "" : `${Math.round(Number(text) * 100)} %`;
    if (element.textContent !== shown) element.textContent = shown;
    return;
  }
  if (element.textContent !== text) element.textContent = text;
}

export class Page {
  constructor(main) {
    this.main = main;
    this.topic = main.dataset.topic;
    this.params = read("live-params");
    this.doc = read("live-doc");
    this.once = read("live-once");
    this.at = Number(main.dataset.at);
    this.listeners = [];
    this.bound = [...document.querySelectorAll("[data-live]")].map((element) => [element, element.dataset.live, element.dataset.as]);
    this.marked = [...document.querySelectorAll("[data-live-attr]")].map((element) => {
      const [path, name] = element.dataset.liveAttr.split(":");
      return [element, path, name];
    });
    seedSparks(this.once.sparks ?? {});
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  snapshot(at, doc, once) {
    this.at = at;
    this.doc = doc;
    this.once = once;
    seedSparks(once.sparks ?? {});
    this.draw(null);
  }

  patch(at, patch) {
    this.at = at;
    this.doc = applyPatch(this.doc, patch);
    this.draw(patch);
  }

  draw(patch) {
    for (const [element, path, as] of this.bound) {
      if (patch === null || dig(patch, path) !== undefined || dig(patch, path.split(".")[0]) === null)
        write(element, dig(this.doc, path), as);
    }
    for (const [element, path, name] of this.marked) {
      const value = dig(this.doc, path);
      if (value !== undefined && element.dataset[name] !== String(value)) element.dataset[name] = value;
    }
    for (const [key, tile] of Object.entries(this.doc.tiles ?? {})) pushSpark(`tiles/${key}`, tile.spark, this.at);
    renderTables(this.doc.tables ?? {}, patch === null ? null : (patch.tables ?? {}), this.at);
    renderFeed(this.doc.feed, patch === null ? true : patch.feed);
    for (const listener of this.listeners) listener(this, patch);
  }
}

export function startBinding() {
  return new Page(document.getElementById("main"));
}
