/** Light, dark, or as the machine has it. */

export type Theme = "auto" | "light" | "dark";
const KEY = "firesteel.theme";

export function theme(): Theme {
  const kept = read();
  return kept === "light" || kept === "dark" ? kept : "auto";
}

export function applyTheme(): void {
  const chosen = theme();
  if (chosen === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = chosen;
}

export function isDark(): boolean {
  const chosen = theme();
  return chosen === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}

export function toggleTheme(): void {
  try {
    localStorage.setItem(KEY, isDark() ? "light" : "dark");
  } catch {
    // A browser that keeps nothing: it stays as the machine has it.
  }
  applyTheme();
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
