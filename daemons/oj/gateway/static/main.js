// Starts the page: who is here, which address, which view. Addresses are real paths; a click on a
// link of ours changes the view without loading the page anew.

import {askSession, onLost, setSession, who} from "./api.js";
import {h, replace} from "./dom.js";
import {installKeys} from "./keys.js";
import {drawShell, installShell, main, showHelp, switchTheme, toast} from "./shell.js";
import {t} from "./words.js";

const VIEWS = [
  [/^\/$/, () => import("./views/dashboard.js")],
  [/^\/submit$/, () => import("./views/submit.js")],
  [/^\/tasks$/, () => import("./views/tasks.js")],
  [/^\/tasks\/([^/]+)$/, () => import("./views/task.js")],
  [/^\/executors$/, () => import("./views/executors.js")],
  [/^\/judicators$/, () => import("./views/cluster.js")],
  [/^\/tokens$/, () => import("./views/tokens.js")],
  [/^\/login$/, () => import("./views/login.js")],
];

const facts = JSON.parse(document.getElementById("facts").textContent);
let leave = () => {};
let turn = 0;

export function go(address, {instead = false} = {}) {
  if (instead) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  return show({focus: true});
}

// Also one that has yet to come.
function leaveView() {
  turn += 1;
  leave();
  leave = () => {};
}

function find(path) {
  for (const [pattern, load] of VIEWS) {
    const match = pattern.exec(path);
    if (match) return {load, parts: match.slice(1).map(decodeURIComponent)};
  }
  return null;
}

async function show({focus = false} = {}) {
  leaveView();
  const mine = turn;
  const path = location.pathname;
  if (!who() && path !== "/login") {
    history.replaceState(null, "", `/login?next=${encodeURIComponent(path + location.search)}`);
    return show({focus});
  }
  drawShell(path);
  const found = find(path);
  const root = h("div", {class: "view"});
  main.setAttribute("aria-busy", "true");
  if (found) {
    const view = await found.load();
    if (mine !== turn) return;
    replace(main, root);
    leave = view.mount(root, {parts: found.parts, query: new URLSearchParams(location.search), go, facts}) ?? (() => {});
  } else {
    replace(main, root);
    replace(root, h("h1", {}, t("page.notfound")), h("p", {}, t("page.notfound.detail")),
      h("p", {}, h("a", {href: "/"}, t("page.back"))));
  }
  main.removeAttribute("aria-busy");
  const heading = root.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} – oj`;
  if (focus && heading && !root.contains(document.activeElement)) {
    heading.tabIndex = -1;
    heading.focus({preventScroll: true});
    scrollTo(0, 0);
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const target = new URL(link.href);
  if (target.origin !== location.origin || link.hasAttribute("download") || link.target || target.pathname.startsWith("/api/")) return;
  event.preventDefault();
  go(target.pathname + target.search);
});
addEventListener("popstate", () => show());

onLost(() => {
  if (who() === null) return;
  setSession(null);
  toast(t("problem.login"), "bad");
  show();
});

installShell({go, refresh: () => show(), leave: leaveView});
installKeys({go, showHelp, switchTheme});
if (facts.session === "unknown") {
  try {
    await askSession();
  } catch (problem) {
    toast(problem.told, "bad");
  }
} else setSession(facts.session);
await show();
