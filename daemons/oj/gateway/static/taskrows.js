// Rows of a table of tasks, each kept and changed in place: focus and choice stay where they are.

import {mayChange} from "./api.js";
import {h, replace} from "./dom.js";
import {moment, shortId} from "./format.js";
import {badge, bar, resultOf, scoreText} from "./parts.js";
import {t} from "./words.js";

export function tableHead(selectAll) {
  return h("thead", {}, h("tr", {},
    selectAll ? h("th", {scope: "col", class: "pick"}, selectAll) : null,
    ["tasks.id", "tasks.result", "tasks.tests", "tasks.score", "tasks.language", "tasks.user", "tasks.added", "tasks.tags"].map((key) =>
      h("th", {scope: "col"}, t(key)))));
}

/** {element, show(task), select(on)} */
export function makeRow({selectable = false, choose = () => {}} = {}) {
  let task = null;
  const box = h("input", {type: "checkbox", onchange: () => choose(task.id, box.checked)});
  const link = h("a", {class: "id", "data-row": true});
  const cells = Object.fromEntries(["result", "tests", "score", "language", "user", "added", "tags"].map((name) => [name, h("td", {class: `c-${name}`})]));
  const element = h("tr", {}, selectable ? h("td", {class: "pick"}, box) : null, h("th", {scope: "row"}, link), Object.values(cells));
  return {
    element,
    select(on) {
      box.checked = on;
      element.classList.toggle("chosen", on);
    },
    show(value) {
      task = value;
      element.dataset.id = value.id;
      element.dataset.status = value.status;
      link.href = `/tasks/${encodeURIComponent(value.id)}`;
      link.textContent = shortId(value.id);
      link.title = value.id;
      box.setAttribute("aria-label", t("tasks.select", {id: shortId(value.id)}));
      box.disabled = !mayChange(value.user);
      const result = resultOf(value);
      if (cells.result.dataset.text !== result.text) {
        cells.result.dataset.text = result.text;
        replace(cells.result, badge(result));
      }
      const done = value.done && value.status !== "cancelled" ? value.tests_total : value.tests_done;
      const tests = t("task.testsof", {done: value.tests_done ?? 0, total: value.tests_total ?? 0});
      replace(cells.tests, h("span", {class: "value", title: tests}, value.done ? String(value.tests_total ?? "–") : `${value.tests_done ?? 0}/${value.tests_total ?? 0}`),
        value.done ? null : bar((done ?? 0) / Math.max(1, value.tests_total ?? 1), tests));
      cells.tests.dataset.label = t("tasks.tests");
      cells.score.textContent = value.done ? scoreText(value.score) : "";
      cells.language.textContent = value.language ?? "–";
      cells.user.textContent = value.user ?? "";
      cells.added.textContent = moment(value.add_time);
      replace(cells.tags, h("span", {class: "tags"}, (value.tags ?? []).map((tag) => h("a", {class: "tag", href: `/tasks?tag=${encodeURIComponent(tag)}`}, tag))));
    },
  };
}
