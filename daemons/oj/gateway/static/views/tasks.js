// The list of tasks: filters live in the address, rows follow what happens, several can be chosen.

import {ask, has, mayChange, post, taskPath, who} from "../api.js";
import {arrange, choice, field, h, replace} from "../dom.js";
import {icon} from "../icons.js";
import {follow, throttle} from "../live.js";
import {liveMark, loading, showFailure, STATUSES, VERDICTS} from "../parts.js";
import {attempt, toast} from "../shell.js";
import {makeRow, tableHead} from "../taskrows.js";
import {t, word} from "../words.js";

const FILTERS = ["user", "status", "verdict", "language", "tag", "since", "executor"];
const PAUSE_MS = 1000;
const PAGE = 50;
const OPEN = "pending,compiling,running,retrying";

/** What the field for a time wants, in the reader's own time zone. */
function toLocal(text) {
  const then = new Date(text);
  if (Number.isNaN(then.getTime())) return "";
  return new Date(then.getTime() - then.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export function mount(root, {query, go}) {
  const stop = new AbortController();
  const rows = new Map();
  const chosen = new Set();
  let tasks = [];
  const filtered = FILTERS.some((name) => query.get(name));
  const paged = Boolean(query.get("cursor"));
  const mayAct = has("submit");

  // ------------------------------------------------------------------ filters

  const text = (name) => h("input", {name, value: query.get(name) ?? "", autocomplete: "off", autocapitalize: "off", spellcheck: "false"});
  const all = ["", t("tasks.all")];
  const ownOnly = !has("read");
  const inputs = {
    user: ownOnly ? null : text("user"),
    status: choice([all, [OPEN, t("tasks.open")], ...STATUSES.map((one) => [one, `${word("status", one)} (${one})`])], query.get("status") ?? "", {name: "status"}),
    verdict: choice([all, ...VERDICTS.map((one) => [one, word("verdict", one)])], query.get("verdict") ?? "", {name: "verdict"}),
    language: choice([all], "", {name: "language"}),
    tag: text("tag"),
    executor: text("executor"),
    since: h("input", {name: "since", type: "datetime-local", value: query.get("since") ? toLocal(query.get("since")) : ""}),
  };
  const firstInput = inputs.user ?? inputs.status;
  firstInput.dataset.filter = "";
  if (query.get("status") && inputs.status.value !== query.get("status")) {
    inputs.status.append(h("option", {value: query.get("status"), selected: true}, query.get("status")));
  }

  function apply() {
    const wanted = new URLSearchParams();
    for (const name of FILTERS) {
      let value = inputs[name]?.value.trim() ?? "";
      if (name === "since" && value) value = new Date(value).toISOString();
      if (value) wanted.set(name, value);
    }
    const next = wanted.size ? `/tasks?${wanted}` : "/tasks";
    if (next !== location.pathname + location.search) go(next);
  }

  const since = field(t("tasks.since"), inputs.since);
  since.classList.add("wide");
  const form = h("form", {class: "card filters", role: "search", "aria-label": t("tasks.filters"), onsubmit: (event) => {
    event.preventDefault();
    apply();
  }},
  inputs.user ? field(t("tasks.user"), inputs.user) : null,
  field(t("tasks.status"), inputs.status), field(t("tasks.verdict"), inputs.verdict), field(t("tasks.language"), inputs.language),
  field(t("tasks.tag"), inputs.tag), field(t("tasks.executor"), inputs.executor), since,
  h("div", {class: "row buttons"}, h("button", {type: "submit"}, t("tasks.apply")),
    filtered ? h("a", {class: "button quiet", href: "/tasks", id: "clear"}, t("tasks.clear")) : null));
  for (const name of ["status", "verdict", "language"]) inputs[name].addEventListener("change", apply);

  // --------------------------------------------------------------------- rows

  const live = liveMark();
  const body = h("tbody");
  const selectAll = h("input", {type: "checkbox", "aria-label": t("tasks.selectall"), onchange: () => {
    for (const task of tasks) {
      if (!mayChange(task.user)) continue;
      if (selectAll.checked) chosen.add(task.id);
      else chosen.delete(task.id);
    }
    drawChosen();
  }});
  const table = h("table", {class: "tasks"}, h("caption", {class: "hidden"}, t("tasks.table")), tableHead(mayAct ? selectAll : null), body);
  const place = h("div", {class: "card flush"}, loading());
  const pages = h("nav", {class: "row between pages", "aria-label": t("tasks.pages")});
  const bar = h("div", {class: "selection card", role: "region", "aria-label": t("tasks.selected", {n: 0}), hidden: true});

  const choose = (id, on) => {
    if (on) chosen.add(id);
    else chosen.delete(id);
    drawChosen();
  };

  function draw(cursor) {
    for (const id of [...rows.keys()]) if (!tasks.some((task) => task.id === id)) rows.delete(id);
    for (const id of [...chosen]) if (!rows.has(id) && !tasks.some((task) => task.id === id)) chosen.delete(id);
    for (const task of tasks) {
      if (!rows.has(task.id)) rows.set(task.id, makeRow({selectable: mayAct, choose}));
      rows.get(task.id).show(task);
    }
    arrange(body, tasks.map((task) => rows.get(task.id).element));
    if (tasks.length) {
      if (table.parentNode !== place) replace(place, table);
    } else {
      replace(place, h("div", {class: "nothing"}, icon("tasks"), h("p", {}, t(filtered || paged ? "tasks.none" : "tasks.none.yet")),
        !filtered && !paged && has("submit") ? h("a", {class: "button primary", href: "/submit"}, t("tasks.first")) : null));
    }
    const older = new URLSearchParams(location.search);
    older.set("cursor", cursor ?? "");
    const newest = new URLSearchParams(location.search);
    newest.delete("cursor");
    replace(pages,
      paged ? h("a", {class: "button", href: newest.size ? `/tasks?${newest}` : "/tasks", id: "newest"}, t("tasks.newest")) : h("span"),
      cursor ? h("a", {class: "button", href: `/tasks?${older}`, id: "older"}, t("tasks.older")) : null);
    drawChosen();
  }

  function drawChosen() {
    for (const [id, row] of rows) row.select(chosen.has(id));
    selectAll.checked = chosen.size > 0 && chosen.size === tasks.filter((task) => mayChange(task.user)).length;
    selectAll.indeterminate = chosen.size > 0 && !selectAll.checked;
    bar.hidden = !chosen.size;
    if (!chosen.size) return;
    const open = tasks.filter((task) => chosen.has(task.id) && !task.done).length;
    const button = (key, symbol, work, off = false) => {
      const one = h("button", {type: "button", id: key.replace(".", "-"), disabled: off, onclick: () => attempt(one, work)}, icon(symbol), t(key));
      return one;
    };
    replace(bar, h("strong", {}, t("tasks.selected", {n: chosen.size})),
      h("div", {class: "row"}, button("tasks.rejudge", "retry", rejudge), button("tasks.cancel", "cross", cancel, !open)));
  }

  async function rejudge() {
    const {ids} = await post("/tasks/rejudge", {ids: [...chosen]});
    toast(t("tasks.rejudged", {n: Object.keys(ids).length}));
    chosen.clear();
    await load();
  }

  async function cancel() {
    const wanted = tasks.filter((task) => chosen.has(task.id) && !task.done);
    const found = await Promise.all(wanted.map((task) => post(taskPath(task.id, "cancel"))));
    toast(t("tasks.cancelled", {n: found.filter((one) => one.cancelled).length}));
    chosen.clear();
    await load();
  }

  // ------------------------------------------------------------------ loading

  // An answer may be older than an event, or than the answer to a later question.
  let asked = 0;
  let answered = 0;
  let heard = 0;

  async function load() {
    const number = ++asked;
    const before = heard;
    const wanted = new URLSearchParams();
    for (const name of [...FILTERS, "cursor"]) if (query.get(name)) wanted.set(name, query.get(name));
    wanted.set("limit", PAGE);
    try {
      const found = await ask(`/tasks?${wanted}`, {signal: stop.signal});
      if (number < answered) return;
      answered = number;
      tasks = found.tasks;
      draw(found.cursor);
      if (heard !== before) reload();
    } catch (problem) {
      if (number < answered) return;
      showFailure(place, problem, load);
    }
  }

  const reload = throttle(load, PAUSE_MS);

  function onTask(value) {
    const known = tasks.find((task) => task.id === value.id);
    if (known) {
      heard++;
      Object.assign(known, value);
      rows.get(value.id)?.show(known);
      if (chosen.has(value.id)) drawChosen();
      // It may not belong to what is asked for any longer.
      if (query.get("status") || query.get("verdict")) reload();
    } else if (!paged && mayBelong(value)) reload();
  }

  const mayBelong = (value) =>
    (!query.get("user") || query.get("user") === value.user) && (!query.get("executor") || query.get("executor") === value.executor) && (!query.get("language") || query.get("language") === value.language);

  async function loadLanguages() {
    try {
      const {languages} = await ask("/languages", {signal: stop.signal});
      const names = new Set(languages.map((one) => one.name));
      if (query.get("language")) names.add(query.get("language"));
      for (const name of [...names].sort()) inputs.language.append(h("option", {value: name, selected: name === query.get("language")}, name));
    } catch (problem) {
      if (problem.name !== "AbortError" && !("told" in problem)) throw problem;
    }
  }

  root.append(
    h("div", {class: "row between"}, h("div", {class: "row"}, h("h1", {}, t("tasks.title")), live),
      mayAct && who() ? h("a", {class: "button primary", href: "/submit"}, icon("plus"), t("nav.submit")) : null),
    h("details", {class: "filterbox", open: filtered || matchMedia("(min-width: 52.01rem)").matches}, h("summary", {}, t("tasks.filters")), form),
    bar, place, pages);
  load();
  loadLanguages();
  const unfollow = follow("/events", {task: onTask, gap: reload, state: (on) => {
    live.set(on);
    if (on) reload(); // what happened before the stream began
  }});
  return () => {
    stop.abort();
    reload.stop();
    unfollow();
  };
}
