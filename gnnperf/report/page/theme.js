// Light, dark, or as the system is: a button that goes through the three and remembers the choice.
"use strict";

const THEMES = ["system", "light", "dark"];

function storedTheme() {
  try {
    return localStorage.getItem("gnnperf-theme") || "system";
  } catch { // a browser may keep nothing for files
    return "system";
  }
}

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = `Colors: ${theme}`;
  button.setAttribute("aria-label", `Colors: ${theme}. Change`);
  document.dispatchEvent(new Event("themechange"));
}

function startTheme() {
  let theme = THEMES.includes(storedTheme()) ? storedTheme() : "system";
  const button = document.getElementById("theme");
  button.hidden = false;
  applyTheme(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("gnnperf-theme", theme);
    } catch { /* then it holds for this visit */ }
    applyTheme(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.dispatchEvent(new Event("themechange"));
  });
}

// What a variable of the style sheet is now, as rgb(): a canvas does not know light-dark().
function colorOf(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

startTheme();
