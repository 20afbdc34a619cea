// The page comes complete from the server; this makes it move.
//
//   live.js    the websocket: snapshots, numbered patches, reconnecting, pausing
//   bind.js    a document's values into the elements that name them
//   tables.js  rows: added, changed, re-ordered only when nobody points at them
//   feed.js    the decision feed
//   charts.js  Plotly figures from skeletons, one drawing task at a time
//   spark.js   sparklines
//   clock.js   local time or UTC, ages
//   theme.js   dark, light or as the system says
//   keys.js    the keyboard
//   forms.js   copying commands, confirming actions

import { startBinding } from "./bind.js";
import { startCharts } from "./charts.js";
import { startClock } from "./clock.js";
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

startTheme();
startClock();
startForms();
startKeys();

const begin = () => {
  const page = startBinding();
  startCharts(page);
  startLive(page);
};

begin();
// htmx swaps the main element when a filter changes: a new document begins.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id === "main" || document.getElementById("main") !== null) begin();
});
