// One task, live: where it is, what came out, and everything that belongs to it.

import {ask, mayChange, post, taskPath} from "../api.js";
import {h, replace} from "../dom.js";
import {shortId} from "../format.js";
import {icon} from "../icons.js";
import {follow, repeat} from "../live.js";
import {liveMark, loading, resultOf, showFailure} from "../parts.js";
import {announce, attempt, copyText, toast} from "../shell.js";
import {drawTests, summarizeTests} from "../testtable.js";
import {drawAttempts, drawCompile, drawFacts, drawFiles} from "../taskparts.js";
import {drawTimeline} from "../timeline.js";
import {t} from "../words.js";

export function mount(root, {parts: [id], go, facts}) {
  const stop = new AbortController();
  let task = null;
  let ended = null;
  let tick = () => {};
  const title = h("h1", {}, t("task.title", {id: shortId(id)}));
  const live = liveMark();
  const actions = h("div", {class: "row wrap actions"});
  const hero = h("section", {class: "card hero", "aria-live": "polite", "aria-atomic": "true"}, loading());
  const timeline = h("section", {class: "card"});
  const rest = h("div", {class: "stack"});
  root.append(
    h("div", {class: "row between wrap"}, h("div", {class: "row"}, title,
      h("button", {type: "button", class: "quiet square", "aria-label": t("task.copy"), title: id, onclick: () => copyText(id)}, icon("copy")), live), actions),
    hero, timeline, rest);

  // The times at which we saw it move on: only whoever watches knows them.
  const seen = {};

  function note(value) {
    if (value.time && !(value.status in seen)) seen[value.status] = value.time;
  }

  function drawHead() {
    const {kind, symbol, text} = resultOf(task);
    const score = task.done && task.verdict && task.tests_total > 1 && task.score !== null ? t("task.score", {score: Math.round(task.score * 100)}) : "";
    hero.className = `card hero ${kind}`;
    replace(hero,
      h("div", {class: "verdict"}, kind === "live" ? h("span", {class: "spinner", "aria-hidden": "true"}) : icon(symbol), h("strong", {id: "verdict"}, text)),
      h("div", {class: "sub"},
        h("span", {}, [task.language, task.user && t("task.by", {user: task.user}), task.executor].filter(Boolean).join(" · ")),
        h("span", {}, [score, task.done ? summarizeTests(task) : t("task.testsof", {done: task.tests_done, total: task.tests_total})].filter(Boolean).join(" · "))),
      task.message ? h("p", {class: "message"}, task.message) : null);
    document.title = `${text} · ${shortId(id)} – oj`;
    tick = drawTimeline(timeline, task, seen);
  }

  // Buttons stay as long as they mean the same: somebody may be about to press one.
  let offered = "";

  function drawActions() {
    const mine = mayChange(task.user);
    if (offered === `${mine} ${task.done}`) return;
    offered = `${mine} ${task.done}`;
    const button = (key, symbol, work, kind = "") => {
      const one = h("button", {type: "button", class: kind, id: key.replace(".", "-"), onclick: () => attempt(one, work)}, icon(symbol), t(key));
      return one;
    };
    replace(actions,
      mine && !task.done ? button("task.cancel", "cross", async () => {
        const {cancelled} = await post(taskPath(id, "cancel"));
        toast(t(cancelled ? "task.cancelled" : "task.toolate"), cancelled ? "good" : "bad");
        await load();
      }, "danger") : null,
      mine && task.done ? button("task.rejudge", "retry", async () => {
        const made = await post(taskPath(id, "rejudge"));
        toast(t("task.rejudging"));
        go(`/tasks/${made.id}`);
      }) : null,
      mine ? h("a", {class: "button", href: `/submit?from=${id}`}, icon("edit"), t("task.edit")) : null);
  }

  function drawRest() {
    replace(rest,
      drawTests(task, stop.signal),
      drawCompile(task),
      drawFiles(task, facts.editor, stop.signal),
      h("div", {class: "columns"}, drawFacts(task), drawAttempts(task)));
  }

  async function load() {
    task = await ask(taskPath(id), {signal: stop.signal});
    drawHead();
    drawActions();
    drawRest();
  }

  function onTask(value) {
    note(value);
    if (!task) return;
    const before = task;
    task = {...task, ...value, tags: task.tags, tests: task.tests};
    drawHead();
    if (value.done && !before.done) {
      announce(t("task.announce.done", {verdict: resultOf(task).text}));
      load().catch((problem) => showFailure(rest, problem, load));
    } else if (before.status !== value.status) drawActions();
  }

  async function start() {
    try {
      await load();
    } catch (problem) {
      if (problem.status === 404 || problem.status === 422) {
        live.remove();
        timeline.remove();
        replace(hero, h("p", {role: "alert"}, t("task.none")), h("p", {}, h("a", {href: "/tasks"}, t("nav.tasks"))));
      } else showFailure(rest, problem, () => {
        replace(rest);
        start();
      });
      return;
    }
    if (task.done) {
      live.remove();
      return;
    }
    ended = follow(taskPath(id, "events"), {task: onTask, state: (on) => live.set(on), end: () => live.remove()});
  }

  const ticking = repeat(() => tick(), 250);
  start();
  return () => {
    stop.abort();
    ticking();
    ended?.();
  };
}
