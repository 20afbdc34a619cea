// Sparklines: the server draws the first one, the browser continues it point by point.
// The same scaling as spark_path in fleet/templatetags/dashboard.py.

const WIDTH = 100;
const HEIGHT = 24;
const LONGEST = { tiles: 300 };
const ROW_POINTS = 60;
const rings = new Map();

export function seedSparks(sparks) {
  rings.clear();
  for (const [key, values] of Object.entries(sparks)) rings.set(key, { values: [...values], at: 0 });
}

export function path(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length < 2) return "";
  const top = Math.max(...known, 1e-9);
  const low = Math.min(...known, 0);
  const step = WIDTH / (values.length - 1);
  let drawn = "";
  let penDown = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) {
      penDown = false;
      return;
    }
    const y = HEIGHT - 1 - ((value - low) / (top - low)) * (HEIGHT - 2);
    drawn += `${penDown ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    penDown = true;
  });
  return drawn;
}

export function pushSpark(key, value, at, svg) {
  let ring = rings.get(key);
  if (!ring) rings.set(key, (ring = { values: [], at: 0 }));
  if (ring.at === at) return;
  ring.at = at;
  ring.values.push(typeof value === "number" ? value : null);
  const longest = LONGEST[key.split("/")[0]] ?? ROW_POINTS;
  if (ring.values.length > longest) ring.values.splice(0, ring.values.length - longest);
  const target = svg ?? (ring.svg?.isConnected ? ring.svg : (ring.svg = document.querySelector(`[data-spark="${CSS.escape(key)}"]`)));
  target?.firstElementChild?.setAttribute("d", path(ring.values));
}
