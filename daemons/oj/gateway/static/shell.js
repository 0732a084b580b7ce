// What surrounds every view: header, navigation, messages, dialogs, the look.

import {has, logOut, who} from "./api.js";
import {h, newId, replace} from "./dom.js";
import {icon} from "./icons.js";
import {describeKeys} from "./keys.js";
import {keep, kept, language, LANGUAGES, setLanguage, t} from "./words.js";

const THEMES = ["auto", "light", "dark"];
const TOAST_MS = 6000;
const LINKS = [
  ["/", "dashboard", null],
  ["/submit", "submit", null],
  ["/tasks", "tasks", null],
  ["/executors", "executors", null],
  ["/judicators", "cluster", null],
  ["/tokens", "tokens", "admin"],
];

const header = h("header", {class: "top"});
const nav = h("nav", {class: "main"});
export const main = h("main", {id: "content", tabindex: "-1"});
const toasts = h("div", {class: "toasts"});
const polite = h("div", {class: "hidden", role: "status", "aria-live": "polite"});
let act = {go: () => {}, refresh: () => {}, leave: () => {}};

export function installShell(actions) {
  act = actions;
  document.body.prepend(
    h("a", {class: "skip", href: "#content", onclick: (event) => {
      event.preventDefault();
      main.focus();
    }}, t("nav.skip")),
    header, nav, main, toasts, polite);
}

export function drawShell(path) {
  document.querySelector(".skip").textContent = t("nav.skip");
  nav.setAttribute("aria-label", t("nav.label"));
  nav.hidden = !who(); // every link would lead to the same form
  replace(nav, h("ul", {}, LINKS.filter(([, , role]) => !role || (who() && has(role))).map(([href, name]) => {
    const here = href === "/" ? path === "/" : path.startsWith(href);
    return h("li", {}, h("a", {href, "aria-current": here ? "page" : null}, icon(name), h("span", {}, t(`nav.${name}`))));
  })));
  replace(header,
    h("a", {class: "brand", href: "/", "aria-label": `oj – ${t("nav.dashboard")}`}, brand(), h("span", {}, "oj")),
    h("span", {class: "space"}),
    h("label", {class: "hidden", for: "language"}, t("nav.language")),
    h("select", {id: "language", class: "quiet", onchange: (event) => {
      setLanguage(event.target.value);
      act.refresh();
      document.getElementById("language").focus();
    }}, LANGUAGES.map(([word, text, name]) => h("option", {value: word, selected: word === language(), lang: word, title: name}, text))),
    themeButton(),
    h("button", {type: "button", class: "quiet square wide-only", "aria-label": t("nav.help"), title: `${t("nav.help")} (?)`, onclick: showHelp},
      icon("keyboard")),
    person());
}

const brand = () => icon("check", {class: "icon mark"});

function person() {
  const one = who();
  if (!one || one.anonymous) {
    return h("span", {class: "person"},
      one ? h("span", {class: "muted wide-only"}, t("nav.anonymous")) : null,
      h("a", {class: "button small", href: "/login"}, t("nav.login")));
  }
  const name = one.user || one.name || "–";
  return h("span", {class: "person"},
    h("span", {class: "user", title: t("login.as", {user: name})}, name),
    h("button", {type: "button", class: "small", id: "logout", onclick: (event) => attempt(event.currentTarget, async () => {
      act.leave(); // what it would still ask for is not ours any longer
      try {
        await logOut();
      } catch (problem) {
        act.refresh();
        throw problem;
      }
      toast(t("login.out"));
      await act.go("/login");
    })}, t("nav.logout")));
}

// ------------------------------------------------------------------- the look

const theme = () => (THEMES.includes(kept("oj.theme")) ? kept("oj.theme") : "auto");

function themeButton() {
  const name = {auto: "auto", light: "sun", dark: "moon"}[theme()];
  const text = t("theme.now", {theme: t(`theme.${theme()}`)});
  return h("button", {type: "button", id: "theme", class: "quiet square", "aria-label": text, title: text, onclick: switchTheme}, icon(name));
}

export function switchTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  keep("oj.theme", next === "auto" ? null : next);
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  const old = document.getElementById("theme");
  const focused = document.activeElement === old;
  const button = themeButton();
  old.replaceWith(button);
  if (focused) button.focus();
  announce(button.getAttribute("aria-label"));
}

// ------------------------------------------------------------------- messages

/** Said to screen readers only. */
export function announce(text) {
  polite.textContent = text;
}

export function toast(text, kind = "good") {
  const one = h("div", {class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status"},
    icon(kind === "bad" ? "warning" : "check"), h("span", {}, text),
    h("button", {type: "button", class: "quiet square", "aria-label": t("dialog.close"), onclick: () => one.remove()}, icon("cross")));
  toasts.append(one);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  setTimeout(() => one.remove(), kind === "bad" ? 2 * TOAST_MS : TOAST_MS);
}

/** Runs what a button does: no second click meanwhile, and a failure is told. */
export async function attempt(button, work) {
  if (button?.disabled) return;
  if (button) button.disabled = true;
  try {
    await work();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    toast(problem.told ?? String(problem.message), "bad");
  } finally {
    if (button) button.disabled = false;
  }
}

// -------------------------------------------------------------------- dialogs

function openDialog(title, content, buttons) {
  const label = newId("dialog");
  const dialog = h("dialog", {"aria-labelledby": label}, h("h2", {id: label}, title), content, h("div", {class: "row end"}, buttons));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function showHelp() {
  const close = h("button", {type: "button", class: "primary", onclick: () => dialog.close()}, t("dialog.close"));
  const dialog = openDialog(t("keys.title"), describeKeys(), [close]);
}

export function confirmDialog(title, text, action) {
  return new Promise((resolve) => {
    let answer = false;
    const dialog = openDialog(title, h("p", {}, text), [
      h("button", {type: "button", onclick: () => dialog.close()}, t("dialog.cancel")),
      h("button", {type: "button", class: "danger", onclick: () => {
        answer = true;
        dialog.close();
      }}, action),
    ]);
    dialog.addEventListener("close", () => resolve(answer));
  });
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("task.copied"));
  } catch {
    // Without HTTPS there is no clipboard: the text can still be selected by hand.
    getSelection()?.removeAllRanges();
    toast(text);
  }
}
