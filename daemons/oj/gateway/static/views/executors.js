// Executors: what they offer, how busy they are, and whether they are well.

import {ask, has, post} from "../api.js";
import {h, replace} from "../dom.js";
import {moment} from "../format.js";
import {repeat} from "../live.js";
import {badge, bar, loading, showFailure} from "../parts.js";
import {attempt, toast} from "../shell.js";
import {t, word} from "../words.js";

const PAUSE_MS = 3000;
const LOOKS = {ok: ["good", "check"], draining: ["limit", "pause"], sick: ["bad", "warning"], silent: ["judge", "warning"]};

export function mount(root) {
  const stop = new AbortController();
  const place = h("div", {class: "cards"}, loading());
  const opened = new Set();
  let shown = "";
  root.append(h("h1", {}, t("executors.title")), place);

  let asked = 0;
  let answered = 0;

  async function load() {
    const number = ++asked;
    try {
      const {executors} = await ask("/executors", {signal: stop.signal});
      if (number < answered) return; // by now a later question has its answer
      answered = number;
      const text = JSON.stringify(executors);
      if (text === shown) return;
      shown = text;
      const focused = document.activeElement?.id;
      replace(place, executors.length ? executors.map(card) : h("p", {class: "muted"}, t("executors.none")));
      if (focused) document.getElementById(focused)?.focus();
    } catch (problem) {
      if (number < answered) return;
      shown = "";
      showFailure(place, problem, load);
    }
  }

  function card(one) {
    const [kind, symbol] = LOOKS[one.state] ?? ["judge", "dots"];
    const slots = one.slots ?? 0;
    const load = t("executors.of", {n: one.executing, slots});
    const languages = Object.entries(one.languages);
    const drain = h("button", {type: "button", id: `drain-${one.name}`, onclick: () => attempt(drain, () => change(one))}, t(one.drained ? "executors.undrain" : "executors.drain"));
    const rows = [["executors.version", one.version], ["executors.address", one.address], ["executors.reported", moment(one.report_time)], ...Object.entries(one.system).map(([key, value]) => [null, value, key])];
    const more = h("details", {class: "more", open: opened.has(one.name), ontoggle: () => (more.open ? opened.add(one.name) : opened.delete(one.name))},
      h("summary", {id: `more-${one.name}`}, t("executors.system")),
      h("dl", {class: "facts"}, rows.filter(([, value]) => value).map(([key, value, label]) => h("div", {}, h("dt", {}, key ? t(key) : label), h("dd", {}, value)))));
    return h("section", {class: "card executor", "aria-label": one.name, "data-executor": one.name},
      h("div", {class: "row between wrap"}, h("h2", {}, one.name), badge({kind, symbol, text: word("state", one.state)})),
      one.message ? h("p", {class: "note"}, one.message) : null,
      h("div", {}, h("div", {class: "row between"}, h("span", {class: "muted"}, t("executors.load")), h("span", {}, load)), bar(slots ? one.executing / slots : 0, load)),
      h("div", {}, h("h3", {class: "muted"}, t("executors.languages")),
        languages.length ? h("ul", {class: "languages"}, languages.map(([name, version]) => h("li", {}, h("strong", {}, name), " ", h("span", {class: "muted"}, version))))
          : h("p", {class: "muted"}, t("executors.nolanguages"))),
      more, h("div", {class: "row between wrap"}, h("a", {href: `/tasks?executor=${encodeURIComponent(one.name)}`}, t("executors.tasks")), has("admin") ? drain : null));
  }

  async function change(one) {
    const on = !one.drained;
    await post(`/executors/${encodeURIComponent(one.name)}/drain`, {on});
    toast(t(on ? "executors.drained" : "executors.undrained", {name: one.name}));
    await load();
  }

  load();
  const ended = repeat(load, PAUSE_MS);
  return () => {
    stop.abort();
    ended();
  };
}

