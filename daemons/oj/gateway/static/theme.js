// Before the first paint: the chosen look, so that nothing flashes.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("oj.theme");
  } catch {
    // Storage may be forbidden; then the system's choice holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
