// Auto, dark, light: kept in a cookie, so that the server paints the right one at once.

const NEXT = { auto: "dark", dark: "light", light: "auto" };
const WORD = { auto: "Auto", dark: "Dark", light: "Light" };
const root = document.documentElement;

// Charts cannot read custom properties; they ask for the colour as it is now.
const probe = document.createElement("span");
probe.hidden = true;
export function colorOf(token) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = token;
  return getComputedStyle(probe).color;
}

const changed = () => document.dispatchEvent(new CustomEvent("halcyon:theme"));

export function startTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  button?.addEventListener("click", () => {
    const theme = NEXT[root.dataset.theme] ?? "auto";
    root.dataset.theme = theme;
    document.cookie = `halcyon_theme=${theme}; path=/; max-age=31536000; samesite=lax`;
    button.textContent = WORD[theme];
    button.setAttribute("aria-label", `Theme: ${theme}`);
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
