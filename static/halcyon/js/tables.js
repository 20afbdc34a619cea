// Live tables. Cells change in place; rows come and go from a template row; the order changes
// only while neither pointer nor focus is in the table, so that nothing moves under a hand.

import { write } from "./bind.js";
import { stamp } from "./clock.js";
import { pushSpark } from "./spark.js";

const rowCache = new WeakMap(); // tbody -> Map(id -> { row, cells })

function cellsOf(row) {
  return [...row.querySelectorAll("[data-cell]")].map((element) => [element, element.dataset.cell, element.dataset.as, element.dataset.href]);
}

function known(body) {
  let rows = rowCache.get(body);
  if (!rows) {
    rows = new Map([...body.rows].map((row) => [row.dataset.row, { row, cells: cellsOf(row) }]));
    rowCache.set(body, rows);
  }
  return rows;
}

const fill = (pattern, id, values) =>
  pattern.replace(/\{(\w+)\}/g, (_, key) => encodeURIComponent(key === "id" ? id : (values[key] ?? "")));

function writeRow(entry, id, values, changed, table, at) {
  for (const [element, key, as, href] of entry.cells) {
    if (as === "spark") {
      pushSpark(`${table}/${id}`, values[key], at, element.firstElementChild);
      continue;
    }
    if (changed !== null && !(key in changed)) continue;
    if (as === "time") {
      element.dataset.at = values[key] ?? "";
      stamp(element);
    } else write(element, values[key], as);
    if (href) {
      element.setAttribute("href", fill(href, id, values));
      element.hidden = element.textContent === "";
    }
  }
}

function makeRow(wrap, id) {
  const row = wrap.querySelector("template[data-blank]").content.firstElementChild.cloneNode(true);
  row.dataset.row = id;
  return { row, cells: cellsOf(row) };
}

function renderTable(wrap, name, table, patch, at) {
  const body = wrap.querySelector("tbody");
  const rows = known(body);
  for (const [id, values] of Object.entries(table.rows)) {
    let entry = rows.get(id);
    let changed = patch === null ? null : (patch.rows?.[id] ?? {});
    if (!entry) {
      rows.set(id, (entry = makeRow(wrap, id)));
      body.append(entry.row);
      changed = null;
    }
    writeRow(entry, id, values, changed, name, at);
  }
  for (const [id, entry] of rows) {
    if (!(id in table.rows)) {
      entry.row.remove();
      rows.delete(id);
    }
  }
  settleOrder(wrap, body, rows, table.order);
  wrap.dataset.rows = table.shown;
  wrap.querySelector("[data-empty]").hidden = table.shown > 0;
}

function settleOrder(wrap, body, rows, order) {
  if (wrap.matches(":hover") || wrap.contains(document.activeElement)) return;
  order.forEach((id, index) => {
    const row = rows.get(id)?.row;
    if (row && body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
  });
}

export function renderTables(tables, patches, at) {
  for (const wrap of document.querySelectorAll("[data-table]")) {
    const name = wrap.dataset.table;
    const table = tables[name];
    if (table) renderTable(wrap, name, table, patches === null ? null : (patches[name] ?? {}), at);
  }
}
