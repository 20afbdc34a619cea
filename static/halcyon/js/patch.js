// JSON merge patch, RFC 7396: the browser's half of fleet/live/deltas.py.

export function applyPatch(document, patch) {
  const result = { ...document };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else if (typeof value === "object" && !Array.isArray(value)) {
      const before = result[key];
      result[key] = applyPatch(before && typeof before === "object" && !Array.isArray(before) ? before : {}, value);
    } else result[key] = value;
  }
  return result;
}
