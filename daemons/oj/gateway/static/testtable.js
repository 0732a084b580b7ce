// The table of tests: verdict, time and memory against the limits, and on demand what went in, what
// came out and how that differs.

import {h, newId, replace} from "./dom.js";
import {duration, size} from "./format.js";
import {icon} from "./icons.js";
import {downloadLink, isBinary, loadStream, section, showBytes, showDifference} from "./output.js";
import {bar, loading, lookOf, showFailure, verdictBadge} from "./parts.js";
import {t} from "./words.js";

/** "3 of 4 tests" of a task that is done. */
export function summarizeTests(task) {
  const tests = task.tests ?? [];
  if (!tests.length) return "";
  return t("task.passed", {done: tests.filter((test) => test.verdict === "accepted").length, total: tests.length});
}

function measureCell(value, limit, largest, text) {
  if (value === null || value === undefined) return h("td", {class: "measure"}, "–");
  const words = limit ? t("task.oflimit", {value: text(value), limit: text(limit)}) : t("task.oflargest", {value: text(value)});
  const share = value / (limit || largest || 1);
  const kind = !limit ? "plain" : share >= 1 ? "over" : share > 0.8 ? "near" : "";
  return h("td", {class: "measure"}, h("span", {class: "value"}, text(value)), bar(share, words, kind));
}

const exitText = (test) => {
  if (test.signal) return t("task.exit.signal", {signal: test.signal});
  return test.exit_code ? t("task.exit.code", {code: test.exit_code}) : test.exit_code === 0 ? "0" : "–";
};

export function drawTests(task, signal) {
  const tests = task.tests ?? [];
  if (!tests.length) return null;
  const limits = task.task?.execute?.limits ?? {};
  const given = task.task?.tests ?? [];
  const most = (key) => Math.max(1, ...tests.map((test) => test[key] ?? 0));
  const largest = {cpu_ms: most("cpu_ms"), memory_bytes: most("memory_bytes")};
  const weighted = new Set(given.map((test) => test.weight)).size > 1;
  const body = h("tbody");
  tests.forEach((test, at) => {
    const opened = h("tr", {class: "opened", id: newId("test"), hidden: true});
    const button = h("button", {type: "button", class: "quiet toggle", "aria-expanded": "false", "aria-controls": opened.id, "aria-label": t("task.details", {name: test.name}), onclick: () => toggle()},
      icon("chevron"), h("span", {}, test.name));
    let loaded = false;
    const columns = weighted ? 6 : 5;
    const toggle = () => {
      opened.hidden = !opened.hidden;
      button.setAttribute("aria-expanded", String(!opened.hidden));
      if (opened.hidden || loaded) return;
      loaded = true;
      const cell = h("td", {colspan: columns}, loading());
      replace(opened, cell);
      fillDetails(cell, task, test, given[at], at + 1, signal);
    };
    body.append(h("tr", {class: `result ${lookOf(test.verdict)[0]}`},
      h("th", {scope: "row"}, button), h("td", {}, verdictBadge(test.verdict)),
      measureCell(test.cpu_us !== null && test.cpu_us !== undefined ? test.cpu_us / 1000 : test.cpu_ms, limits.cpu_ms, largest.cpu_ms, duration),
      measureCell(test.memory_bytes, limits.memory_bytes, largest.memory_bytes, size),
      h("td", {class: test.exit_code === 0 ? "zero" : null, "data-label": t("task.exit")}, exitText(test)), weighted ? h("td", {"data-label": t("task.weight")}, given[at]?.weight ?? "") : null), opened);
  });
  const head = ["task.test", "task.verdict", "task.time", "task.memory", "task.exit", ...(weighted ? ["task.weight"] : [])];
  return h("section", {class: "card", "aria-labelledby": "task-tests"}, h("h2", {id: "task-tests"}, t("task.tests")), strip(tests),
    h("div", {class: "scroll"}, h("table", {class: "results"}, h("caption", {class: "hidden"}, t("task.tests")),
      h("thead", {}, h("tr", {}, head.map((key) => h("th", {scope: "col"}, t(key))))), body)));
}

/** All tests at one glance; the table below says the same in words. */
function strip(tests) {
  if (tests.length < 8) return null;
  return h("div", {class: "strip", "aria-hidden": "true"}, tests.map((test) => h("span", {class: lookOf(test.verdict)[0], title: test.name})));
}

async function fillDetails(cell, task, test, given, number, signal) {
  const {id} = task;
  try {
    const part = (name, empty) => loadStream(id, ["tests", number, name], empty, signal);
    const expects = Boolean(given?.expected);
    const ran = test.verdict !== "skipped";
    const [input, expected, actual, errors] = await Promise.all([
      part("input", !given?.input || given.input.size === 0),
      part("expected", !expects || given.expected.size === 0),
      part("stdout", test.stdout === ""),
      part("stderr", test.stderr === ""),
    ]);
    const link = (name, total) => (total ? downloadLink(id, ["tests", number, name], `${test.name} ${name}`) : null);
    const cut = (flag) => (flag ? h("p", {class: "note"}, t("task.cut")) : null);
    replace(cell, h("div", {class: "details"},
      test.message ? h("p", {class: "message"}, test.message) : null,
      ran && expects ? section(t("task.difference"), null, showDifference(expected, actual, {cut: test.stdout_cut, exact: task.task.compare === "exact"})) : null,
      h("div", {class: isBinary(expected) || isBinary(actual) ? "pair wide" : "pair"},
        section(t("task.expected"), link("expected", expected.total), expects ? showBytes(expected.bytes, expected.total) : h("p", {class: "muted"}, t("task.noexpected"))),
        section(t("task.actual"), link("stdout", actual.total), cut(test.stdout_cut), showBytes(actual.bytes, actual.total))),
      h("div", {class: "pair"},
        section(t("task.input"), link("input", input.total), showBytes(input.bytes, input.total)),
        section(t("task.stderr"), link("stderr", errors.total), cut(test.stderr_cut), showBytes(errors.bytes, errors.total)))));
  } catch (problem) {
    showFailure(cell, problem, () => fillDetails(cell, task, test, given, number, signal));
  }
}
