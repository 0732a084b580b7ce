// Log in with a token; the server answers with a cookie that scripts cannot read.

import {logIn} from "../api.js";
import {field, h} from "../dom.js";
import {toast} from "../shell.js";
import {t} from "../words.js";

export function mount(root, {query, go}) {
  const token = h("input", {type: "password", name: "token", autocomplete: "current-password", required: true, spellcheck: "false", autocapitalize: "off", placeholder: "oj_…"});
  const told = h("p", {class: "error", role: "alert"});
  const button = h("button", {class: "primary", type: "submit"}, t("login.do"));
  const show = h("button", {type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
    const hidden = token.type === "password";
    token.type = hidden ? "text" : "password";
    show.textContent = t(hidden ? "login.hide" : "login.show");
    show.setAttribute("aria-pressed", String(hidden));
  }}, t("login.show"));

  async function send(event) {
    event.preventDefault();
    const secret = token.value.trim();
    if (!secret) return token.focus();
    told.textContent = "";
    button.disabled = true;
    try {
      const one = await logIn(secret);
      toast(t("login.done", {user: one.user || one.name || "–"}));
      const next = query.get("next") ?? "/";
      // Only our own addresses: nobody is sent elsewhere by a link to this page.
      await go(/^\/(?![/\\])/.test(next) ? next : "/", {instead: true});
    } catch (problem) {
      if (!("told" in problem)) throw problem;
      told.textContent = {401: t("login.wrong"), 422: t("login.wrong"), 429: t("login.limited")}[problem.status] ?? problem.told;
      token.setAttribute("aria-invalid", "true");
      token.select();
      token.focus();
    } finally {
      button.disabled = false;
    }
  }

  root.append(h("div", {class: "card login"},
    h("h1", {}, t("login.title")),
    h("p", {class: "muted"}, t("login.lead")),
    h("form", {onsubmit: send, novalidate: true},
      field(t("login.token"), token), show, told, button)));
  token.focus();
}
