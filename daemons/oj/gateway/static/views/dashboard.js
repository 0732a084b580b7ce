// The overview: the queue, throughput, how long tasks wait and take, verdicts; all of it live.

import {ask} from "../api.js";
import {arrange, h, replace} from "../dom.js";
import {drawBars, drawLines, drawShares, legend} from "../charts.js";
import {clock, count, duration} from "../format.js";
import {addUp, group, percentile, total} from "../histogram.js";
import {follow, repeat, throttle} from "../live.js";
import {liveMark, showFailure} from "../parts.js";
import {makeRow, tableHead} from "../taskrows.js";
import {t} from "../words.js";

const RANGES = [60, 360, 1440];
const SLOTS = 60;
const PAUSE_MS = 3000;
const IDLE_MS = 15_000;
const NEWEST = 8;
const LEVELS = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]];

export function mount(root, {query}) {
  const range = RANGES.includes(Number(query.get("minutes"))) ? Number(query.get("minutes")) : 60;
  const stop = new AbortController();
  const live = liveMark();
  const tiles = h("dl", {class: "tiles"});
  const failure = h("div");
  const rows = new Map();
  const body = h("tbody");

  const chart = (id, title, unit, key) => {
    const place = h("div", {class: "plot"});
    const table = h("details", {class: "asTable"}, h("summary", {}, t("dashboard.table")), h("div", {class: "scroll tall", tabindex: "0", role: "region", "aria-label": title}));
    const section = h("section", {class: "card chartcard", id, "aria-label": title}, h("h2", {}, title), h("p", {class: "muted unit"}, unit), key, place, table);
    return {section, place, table: table.lastChild};
  };
  const percentileKey = () => legend(LEVELS.map(([name]) => [name, name]));
  const throughput = chart("throughput", t("dashboard.throughput"), t("dashboard.throughput.unit"), legend([["good", t("dashboard.accepted")], ["bad", t("dashboard.others")], ["added", t("dashboard.added")]]));
  const queue = chart("queue", t("dashboard.open"), t("dashboard.open.unit"), null);
  const verdicts = chart("verdicts", t("dashboard.verdicts"), t("dashboard.verdicts.unit"), null);
  const waiting = chart("waiting", t("dashboard.waiting"), t("dashboard.percentiles"), percentileKey());
  const judging = chart("judging", t("dashboard.judging"), t("dashboard.percentiles.judging"), percentileKey());
  verdicts.table.parentNode.remove(); // its list already has the numbers

  root.append(
    h("div", {class: "row between wrap"}, h("div", {class: "row"}, h("h1", {}, t("dashboard.title")), live),
      h("div", {class: "ranges", role: "group", "aria-label": t("dashboard.range")}, RANGES.map((minutes) =>
        h("a", {href: minutes === 60 ? "/" : `/?minutes=${minutes}`, "aria-current": minutes === range ? "true" : null}, minutes === 60 ? t("dashboard.hour") : t("dashboard.hours", {n: minutes / 60}))))),
    failure, tiles,
    h("div", {class: "charts"}, throughput.section, queue.section, waiting.section, judging.section, verdicts.section),
    h("section", {class: "card flush", "aria-label": t("dashboard.recent")}, h("div", {class: "row between head"}, h("h2", {}, t("dashboard.recent")), h("a", {href: "/tasks"}, t("dashboard.alltasks"))),
      h("table", {class: "tasks"}, tableHead(null), body)));

  const tile = (id, label, value, detail) => h("div", {class: "card tile", id}, h("dt", {}, label), h("dd", {}, h("span", {class: "big"}, value), h("span", {class: "muted"}, detail)));

  function drawTiles(stats, slots, boundsMs) {
    const lately = slots.slice(-10);
    const waited = addUp(slots.map((slot) => slot.waiting));
    const judged = addUp(slots.map((slot) => slot.judging));
    // The present minute has only begun: it would make the rate look low.
    const full = range === 60 ? lately.slice(-6, -1) : lately.slice(-3, -1);
    const rate = full.reduce((sum, slot) => sum + slot.accepted + slot.others, 0) / Math.max(1, full.reduce((sum, slot) => sum + slot.width, 0));
    const times = (counts) => [duration(percentile(counts, boundsMs, 0.5)), total(counts) ? t("dashboard.p", {p95: duration(percentile(counts, boundsMs, 0.95))}) : "–"];
    replace(tiles,
      tile("tile-queue", t("dashboard.queue"), count(stats.queue), stats.queue && stats.oldest_pending_ms ? t("dashboard.oldest", {time: duration(stats.oldest_pending_ms)}) : t("dashboard.nobody")),
      tile("tile-running", t("dashboard.running"), count(stats.executing), t("dashboard.slots", {slots: stats.slots, n: stats.executors})),
      tile("tile-rate", t("dashboard.rate"), rate < 10 ? rate.toLocaleString(undefined, {maximumFractionDigits: 1}) : count(rate), t("dashboard.perminute")),
      tile("tile-waiting", t("dashboard.waited"), ...times(waited)),
      tile("tile-judging", t("dashboard.judged"), ...times(judged)));
  }

  function drawTimes({place, table}, slots, key, boundsMs) {
    const lines = LEVELS.map(([look, p]) => ({look, values: slots.map((slot) => percentile(slot[key], boundsMs, p))}));
    const last = slots.findLastIndex((slot) => total(slot[key]));
    const values = last < 0 ? {} : Object.fromEntries(lines.map(({look, values: list}) => [look, duration(list[last])]));
    drawLines(place, slots, lines, duration, last < 0 ? t("dashboard.none") : t("dashboard.alt.times", values));
    drawTable(table, [t("dashboard.time"), ...LEVELS.map(([name]) => name)], slots.map((slot, i) => [clock(slot.time), ...lines.map(({values: list}) => list[i] === null ? "–" : duration(list[i]))]).filter((row) => row[1] !== "–"));
  }

  function drawTable(place, head, lines) {
    if (!place.parentNode.open && place.childNodes.length) return; // drawn when it is opened
    replace(place, h("table", {}, h("thead", {}, h("tr", {}, head.map((text) => h("th", {scope: "col"}, text)))),
      h("tbody", {}, lines.reverse().map((cells) => h("tr", {}, cells.map((cell, at) => h(at ? "td" : "th", at ? {} : {scope: "row"}, cell)))))));
  }

  let known = null;

  function draw() {
    if (!known) return;
    const {stats, history} = known;
    const slots = group(history.minutes, range, SLOTS, Date.now(), stats.queue + stats.executing);
    const boundsMs = history.bounds_ms;
    drawTiles(stats, slots, boundsMs);
    const sum = (key) => slots.reduce((all, slot) => all + slot[key], 0);
    const most = Math.max(0, ...slots.map((slot) => Math.round((slot.accepted + slot.others) / slot.width)));
    drawBars(throughput.place, slots, [{key: "accepted", look: "good"}, {key: "others", look: "bad"}], {key: "added", look: "added"},
      t("dashboard.alt.throughput", {ended: sum("accepted") + sum("others"), added: sum("added"), most}));
    drawTable(throughput.table, [t("dashboard.time"), t("dashboard.accepted"), t("dashboard.others"), t("dashboard.added")],
      slots.filter((slot) => slot.accepted + slot.others + slot.added).map((slot) => [clock(slot.time), slot.accepted, slot.others, slot.added]));
    drawBars(queue.place, slots, [{key: "open", look: "open"}], null,
      t("dashboard.alt.open", {now: slots.at(-1).open, most: Math.max(...slots.map((slot) => slot.open))}), {rate: false});
    drawTable(queue.table, [t("dashboard.time"), t("dashboard.open")], slots.filter((slot) => slot.open).map((slot) => [clock(slot.time), slot.open]));
    drawTimes(waiting, slots, "waiting", boundsMs);
    drawTimes(judging, slots, "judging", boundsMs);
    const shares = {};
    for (const slot of slots) for (const [name, n] of Object.entries(slot.verdicts)) shares[name] = (shares[name] ?? 0) + n;
    drawShares(verdicts.place, shares);
  }

  function drawNewest(tasks) {
    for (const id of [...rows.keys()]) if (!tasks.some((task) => task.id === id)) rows.delete(id);
    for (const task of tasks) {
      if (!rows.has(task.id)) rows.set(task.id, makeRow());
      rows.get(task.id).show(task);
    }
    arrange(body, tasks.map((task) => rows.get(task.id).element));
  }

  async function load() {
    try {
      const [stats, history, newest] = await Promise.all(["/stats", `/history?minutes=${range}`, `/tasks?limit=${NEWEST}`].map((path) => ask(path, {signal: stop.signal})));
      known = {stats, history};
      replace(failure);
      draw();
      drawNewest(newest.tasks);
    } catch (problem) {
      showFailure(failure, problem, load);
    }
  }

  const reload = throttle(load, PAUSE_MS);
  const redraw = throttle(draw, 150);
  addEventListener("resize", redraw);
  load();
  const unfollow = follow("/events", {task: reload, gap: reload, state: (on) => live.set(on)});
  const ended = repeat(reload, IDLE_MS);
  for (const {table} of [throughput, queue, waiting, judging]) table.parentNode.addEventListener("toggle", draw);
  return () => {
    stop.abort();
    reload.stop();
    redraw.stop();
    removeEventListener("resize", redraw);
    unfollow();
    ended();
  };
}

