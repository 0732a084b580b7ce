// The page's words in the reader's language: chosen once and kept, by default the browser's.

import en from "./words/en.js";
import de from "./words/de.js";

const CATALOGUES = {en, de};
export const LANGUAGES = [["en", "EN", "English"], ["de", "DE", "Deutsch"]];
const KEPT = "oj.language";

export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // Storage may be forbidden or full: then it is not kept.
  }
}

export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function choose() {
  const wanted = [kept(KEPT), ...(navigator.languages ?? [])];
  for (const word of wanted) {
    const short = (word ?? "").slice(0, 2).toLowerCase();
    if (short in CATALOGUES) return short;
  }
  return "en";
}

let chosen = choose();
document.documentElement.lang = chosen;

export const language = () => chosen;

export function setLanguage(word) {
  chosen = word in CATALOGUES ? word : "en";
  document.documentElement.lang = chosen;
  keep(KEPT, chosen);
}

/** The text of a key, with {names} filled in. `n` also chooses between "one | many". */
export function t(key, values = {}) {
  let text = CATALOGUES[chosen][key] ?? en[key] ?? key;
  if ("n" in values && text.includes(" | ")) {
    const [one, many] = text.split(" | ");
    text = values.n === 1 ? one : many;
  }
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? values[name].toLocaleString(chosen) : String(values[name] ?? ""));
}

/** Words of the API (statuses, verdicts, states), which may know more than this page does. */
export function word(kind, value) {
  const key = `${kind}.${value}`;
  return key in en ? t(key) : String(value ?? "").replaceAll("_", " ");
}
