// The cluster itself: judicators, etcd, the database, and what is wrong with them.

import {ask} from "../api.js";
import {h, replace} from "../dom.js";
import {duration} from "../format.js";
import {icon} from "../icons.js";
import {repeat} from "../live.js";
import {badge, loading, showFailure} from "../parts.js";
import {t, word} from "../words.js";

const PAUSE_MS = 5000;

const health = (one) => badge(one.healthy === false ? {kind: "bad", symbol: "warning", text: t("cluster.unhealthy")} : {kind: "good", symbol: "check", text: t("cluster.healthy")});
const leads = (text) => h("strong", {}, text);

export function mount(root) {
  const stop = new AbortController();
  const seen = h("p", {class: "muted"});
  const place = h("div", {class: "stack"}, loading());
  let shown = "";
  root.append(h("div", {}, h("h1", {}, t("cluster.title")), seen), place);

  async function load() {
    try {
      const found = await ask("/cluster", {signal: stop.signal});
      const text = JSON.stringify(found);
      if (text === shown) return;
      shown = text;
      seen.textContent = found.seen_from ? t("cluster.seen", {name: found.seen_from}) : "";
      replace(place, troubles(found.troubles),
        table("cluster.judicators", ["cluster.name", "cluster.address", "cluster.role", "cluster.version", "cluster.state"], found.judicators.map((one) =>
          [one.name, one.address, one.leader ? leads(t("cluster.leader")) : t("cluster.member"), one.version ?? "–", health(one)])),
        table("cluster.etcd", ["cluster.name", "cluster.address", "cluster.role", "cluster.state"], found.etcd.map((one) =>
          [one.name, one.address ?? "–", one.leader ? leads(t("cluster.leader")) : t(one.learner ? "cluster.learner" : "cluster.member"), [health(one), why(one)]])),
        table("cluster.database", ["cluster.name", "cluster.address", "cluster.role", "cluster.lag", "cluster.state"], found.database.map((one) =>
          [one.name, one.address, [one.state === "primary" ? leads(word("member", one.state)) : word("member", one.state), one.voter ? null : ` · ${t("cluster.novote")}`],
            one.state === "primary" || one.lag_ms === null ? "–" : duration(one.lag_ms), [health(one), why(one)]])),
        table("cluster.gateways", ["cluster.name", "cluster.address", "cluster.version", "cluster.state"], found.gateways.map((one) =>
          [one.name, one.address ?? "–", one.version ?? "–", health({healthy: !one.silent})])));
    } catch (problem) {
      shown = "";
      showFailure(place, problem, load);
    }
  }

  const why = (one) => (one.message ? h("span", {class: "muted"}, ` ${one.message}`) : null);

  function troubles(list) {
    if (!list.length) return h("p", {class: "card well"}, icon("check"), t("cluster.well"));
    return h("section", {class: "card troubles", role: "alert"}, h("h2", {}, icon("warning"), t("cluster.troubles")), h("ul", {}, list.map((one) => h("li", {}, one))));
  }

  function table(title, head, rows) {
    return h("section", {class: "card", "aria-label": t(title)}, h("h2", {}, t(title)),
      h("table", {class: "members"}, h("thead", {}, h("tr", {}, head.map((key) => h("th", {scope: "col"}, t(key))))),
        h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h(at ? "td" : "th", at ? {"data-label": t(head[at])} : {scope: "row"}, cell)))))));
  }

  load();
  const ended = repeat(load, PAUSE_MS);
  return () => {
    stop.abort();
    ended();
  };
}
