// The way of a task from submitted to done, with what each step took. While it is under way, the
// present step counts on; afterwards the recorded times tell.

import {h, replace} from "./dom.js";
import {duration, moment} from "./format.js";
import {t} from "./words.js";

const STEPS = ["submitted", "waiting", "compiling", "running", "done"];
const AT = {pending: 1, retrying: 1, compiling: 2, running: 3};

const ms = (text) => (text ? Date.parse(text) : null);

/** What each step took, as far as it is known: pure. */
export function measure(task, seen, nowMs) {
  const added = ms(task.add_time);
  const started = ms(task.start_time);
  const at = task.done ? 4 : AT[task.status] ?? 1;
  const found = {at, waiting: null, compiling: null, running: null, total: null};
  if (started) found.waiting = started - added;
  if (task.done) {
    found.total = ms(task.report_time) - added;
    if (task.compile) found.compiling = task.compile.wall_ms;
    if (task.tests?.length) found.running = task.tests.reduce((sum, test) => sum + (test.wall_ms ?? 0), 0);
  } else {
    const running = ms(seen.running);
    if (at === 1) found.waiting = Math.max(0, nowMs - added);
    if (at >= 2 && started && running) found.compiling = running - started;
    if (at === 2 && started) found.compiling = Math.max(0, nowMs - started);
    if (at === 3) found.running = Math.max(0, nowMs - (running ?? started ?? nowMs));
  }
  return found;
}

/** Draws it; returns what to call now and then while it is under way. */
export function drawTimeline(root, task, seen) {
  const skipped = task.done ? {compiling: !task.compile, running: !task.tests?.length} : {};
  const times = {};
  const items = STEPS.map((step, i) => {
    const {at} = measure(task, seen, Date.now());
    const state = i < at || task.done ? (skipped[step] ? "skipped" : "past") : i === at ? "now" : "next";
    times[step] = h("span", {class: "when"});
    return h("li", {class: state, "aria-current": state === "now" ? "step" : null},
      h("span", {class: "dot", "aria-hidden": "true"}), h("span", {class: "what"}, t(`task.step.${step}`)), times[step]);
  });
  const draw = () => {
    const found = measure(task, seen, Date.now());
    times.submitted.textContent = moment(task.add_time);
    times.waiting.textContent = found.waiting === null ? "" : duration(found.waiting);
    times.compiling.textContent = found.compiling === null ? "" : duration(found.compiling);
    const tests = found.at >= 3 && !task.done ? t("task.testsof", {done: task.tests_done, total: task.tests_total}) : "";
    times.running.textContent = [found.running === null ? "" : duration(found.running), tests].filter(Boolean).join("\n");
    times.done.textContent = task.done ? [moment(task.report_time), t("task.total", {time: duration(found.total)})].join("\n") : "";
  };
  draw();
  const progress = h("progress", {max: Math.max(1, task.tests_total), value: task.done ? task.tests_total : task.tests_done, "aria-label": t("task.testsof", {done: task.tests_done, total: task.tests_total})});
  replace(root, h("h2", {class: "hidden"}, t("task.timeline")), h("ol", {class: "timeline"}, items), task.done ? null : progress);
  return task.done ? () => {} : draw;
}

