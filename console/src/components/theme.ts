/** The colour theme: that of the system, unless the viewer has chosen one. */

export type Theme = "light" | "dark";

const KEY = "mooring.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function theme(): Theme {
  const chosen = localStorage.getItem(KEY);
  return chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
}

export function toggleTheme(): void {
  localStorage.setItem(KEY, theme() === "dark" ? "light" : "dark");
  apply();
}

export function subscribeTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function apply(): void {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

dark.addEventListener("change", apply);
