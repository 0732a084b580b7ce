// Tokens, for administrators: who may do what. A secret is shown once, when it is made.

import {ask, has, post} from "../api.js";
import {field, h, replace} from "../dom.js";
import {moment} from "../format.js";
import {icon} from "../icons.js";
import {loading, showFailure} from "../parts.js";
import {attempt, confirmDialog, copyText, toast} from "../shell.js";
import {t} from "../words.js";

const ROLES = ["submit", "read", "admin"];

export function mount(root) {
  root.append(h("h1", {}, t("tokens.title")));
  if (!has("admin")) {
    root.append(h("p", {class: "card"}, t("tokens.admins")));
    return undefined;
  }
  const stop = new AbortController();
  const place = h("div", {class: "card flush"}, loading());
  const made = h("section", {class: "card made", role: "status", hidden: true});
  const name = h("input", {name: "name", autocomplete: "off", maxlength: 128});
  const user = h("input", {name: "user", autocomplete: "off", maxlength: 128});
  const quota = h("input", {name: "quota", type: "number", min: 1, step: 1, placeholder: t("tokens.quota.none")});
  const days = h("input", {name: "days", type: "number", min: 1, max: 3650, step: 1, placeholder: t("tokens.never")});
  const roles = ROLES.map((role) => h("input", {type: "checkbox", name: `role-${role}`, value: role, checked: role === "submit"}));
  const told = h("p", {class: "error", role: "alert"});
  const button = h("button", {type: "submit", class: "primary"}, icon("plus"), t("tokens.make"));

  async function make() {
    told.textContent = "";
    const body = {name: name.value.trim(), user: user.value.trim(), roles: roles.filter((box) => box.checked).map((box) => box.value)};
    if (quota.value) body.quota = Number(quota.value);
    if (days.value) body.expires_days = Number(days.value);
    try {
      const token = await post("/tokens", body);
      replace(made, h("p", {}, t("tokens.secret", {name: token.name})), secret(token.secret),
        h("p", {class: "muted"}, t("tokens.hooksecret")), secret(token.webhook_secret));
      made.hidden = false;
      name.value = user.value = "";
      await load();
    } catch (problem) {
      if (!("told" in problem)) throw problem;
      told.textContent = problem.told;
    }
  }

  const secret = (text) => h("div", {class: "row wrap"}, h("code", {class: "secret"}, text), h("button", {type: "button", class: "small", onclick: () => copyText(text)}, icon("copy"), t("tokens.copy")));

  async function load() {
    try {
      const {tokens} = await ask("/tokens", {signal: stop.signal});
      replace(place, h("table", {class: "members"}, h("caption", {class: "hidden"}, t("tokens.table")),
        h("thead", {}, h("tr", {}, ["tokens.name", "tokens.user", "tokens.roles", "tokens.quota", "tokens.made", "tokens.expires"].map((key) => h("th", {scope: "col"}, t(key))), h("th", {scope: "col"}, h("span", {class: "hidden"}, t("tokens.remove"))))),
        h("tbody", {}, tokens.map(row))));
    } catch (problem) {
      showFailure(place, problem, load);
    }
  }

  function row(token) {
    const cell = (key, value) => h("td", {"data-label": t(key)}, value);
    const remove = h("button", {type: "button", class: "quiet square", "aria-label": t("tokens.remove.of", {name: token.name}), onclick: () => attempt(remove, async () => {
      if (!(await confirmDialog(t("tokens.remove"), t("tokens.sure", {name: token.name, user: token.user || "–"}), t("tokens.remove")))) return;
      await ask(`/tokens/${encodeURIComponent(token.id)}`, {method: "DELETE"});
      toast(t("tokens.removed"));
      await load();
    })}, icon("trash"));
    return h("tr", {}, h("th", {scope: "row"}, token.name), cell("tokens.user", token.user), cell("tokens.roles", h("span", {class: "tags"}, token.roles.map((role) => h("span", {class: "tag"}, role)))),
      cell("tokens.quota", token.quota ?? t("tokens.quota.none")), cell("tokens.made", moment(token.made)), cell("tokens.expires", token.expires ? moment(token.expires) : t("tokens.never")), h("td", {class: "last"}, remove));
  }

  root.append(
    h("form", {class: "card", novalidate: true, onsubmit: (event) => {
      event.preventDefault();
      attempt(button, make);
    }},
    h("h2", {}, t("tokens.new")),
    h("div", {class: "grid"}, field(t("tokens.name"), name, {hint: t("tokens.name.hint")}), field(t("tokens.user"), user, {hint: t("tokens.user.hint")}), field(t("tokens.quota"), quota), field(t("tokens.days"), days)),
    h("fieldset", {}, h("legend", {}, t("tokens.roles")), roles.map((box) => h("label", {class: "check"}, box, t(`tokens.role.${box.value}`)))),
    told, h("div", {class: "row end"}, button)),
    made, place);
  load();
  return () => stop.abort();
}
