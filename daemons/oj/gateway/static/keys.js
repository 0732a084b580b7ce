// Shortcuts: what a key does, and the help that lists them. Single keys can be switched off, for
// people who talk to their computer; Ctrl-Enter belongs to the form that has the focus.

import {h} from "./dom.js";
import {keep, kept, t} from "./words.js";

const OFF = "oj.keys.off";
const WAIT_MS = 1500;
const GO = {
  o: ["/", "nav.dashboard"],
  s: ["/submit", "nav.submit"],
  t: ["/tasks", "nav.tasks"],
  e: ["/executors", "nav.executors"],
  c: ["/judicators", "nav.cluster"],
};

const typing = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

export function installKeys({go, showHelp, switchTheme}) {
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]") || kept(OFF)) return;
    const key = event.key;
    if (performance.now() < waiting && key in GO) {
      waiting = 0;
      event.preventDefault();
      go(GO[key][0]);
    } else if (key === "g") waiting = performance.now() + WAIT_MS;
    else if (key === "?") showHelp();
    else if (key === "m") switchTheme();
    else if (key === "/") focusFirst(event, "[data-filter]");
    else if (key === "j" || key === "k") moveInList(event, key === "j" ? 1 : -1);
  });
}

function focusFirst(event, selector) {
  const found = document.querySelector(selector);
  if (!found) return;
  event.preventDefault();
  found.closest("details")?.setAttribute("open", "");
  found.focus();
}

function moveInList(event, step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  event.preventDefault();
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  rows[Math.min(rows.length - 1, Math.max(0, at + step))].focus();
}

export function describeKeys() {
  const rows = [
    [["?"], t("keys.help")],
    ...Object.entries(GO).map(([key, [, name]]) => [["g", key], t("keys.go", {name: t(name)})]),
    [["/"], t("keys.filter")],
    [["j", "k"], t("keys.rows")],
    [["Ctrl", "Enter"], t("keys.submit")],
    [["m"], t("keys.theme")],
  ];
  const box = h("input", {
    type: "checkbox",
    checked: !kept(OFF),
    onchange: (event) => keep(OFF, event.target.checked ? null : "1"),
  });
  return h("div", {class: "keys"},
    h("dl", {}, rows.map(([keys, text]) =>
      h("div", {}, h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, text)))),
    h("label", {class: "check"}, box, t("keys.on")));
}
