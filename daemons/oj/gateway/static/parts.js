// Pieces that several views show: verdicts, bars, states, failures.

import {h, replace} from "./dom.js";
import {icon} from "./icons.js";
import {percent} from "./format.js";
import {t, word} from "./words.js";

const LOOKS = {
  accepted: ["good", "check"],
  wrong_answer: ["bad", "cross"],
  presentation_error: ["bad", "output"],
  time_limit: ["limit", "clock"],
  wall_limit: ["limit", "pause"],
  memory_limit: ["limit", "memory"],
  output_limit: ["limit", "output"],
  runtime_error: ["bad", "bolt"],
  compile_error: ["code", "braces"],
  judge_error: ["judge", "warning"],
  skipped: ["none", "dots"],
  cancelled: ["none", "cross"],
};
export const VERDICTS = Object.keys(LOOKS).filter((name) => name !== "cancelled");
export const STATUSES = ["pending", "compiling", "running", "retrying", "success", "compile_failed", "run_failed", "cancelled", "internal_error"];

export const lookOf = (verdict) => LOOKS[verdict] ?? ["none", "dots"];

/** What to show of a task in a word: its verdict once it has one, else where it is. */
export function resultOf(task) {
  if (!task.done) return {kind: "live", symbol: "dots", text: word("status", task.status)};
  const verdict = task.verdict ?? (task.status === "cancelled" ? "cancelled" : "judge_error");
  const [kind, symbol] = lookOf(verdict);
  return {kind, symbol, text: word("verdict", verdict)};
}

export function badge({kind, symbol, text}) {
  return h("span", {class: `badge ${kind}`}, kind === "live" ? h("span", {class: "pulse", "aria-hidden": "true"}) : icon(symbol), h("span", {}, text));
}

export const verdictBadge = (verdict) => {
  const [kind, symbol] = lookOf(verdict);
  return badge({kind, symbol, text: word("verdict", verdict)});
};

/** A value against a limit; `text` says it in words. */
export function bar(share, text, kind = "") {
  const inner = h("span", {class: `fill ${kind}`});
  inner.style.width = `${Math.min(100, Math.max(share > 0 ? 1.500 : 0, share * 100))}%`;
  return h("span", {class: "bar", title: text}, inner);
}

export const scoreText = (score) => (score === null || score === undefined ? "–" : percent(score, 1));

export function liveMark() {
  const mark = h("span", {class: "livemark off"}, t("live.off"));
  mark.set = (on) => {
    mark.className = on ? "livemark on" : "livemark off";
    mark.textContent = t(on ? "live.on" : "live.off");
    mark.title = t(on ? "live.title.on" : "live.title.off");
  };
  return mark;
}

/** In place of what could not be loaded. */
export function showFailure(root, problem, again) {
  if (problem.name === "AbortError") return;
  if (!("told" in problem)) throw problem;
  replace(root, h("div", {class: "card failure", role: "alert"}, icon("warning"),
    h("div", {}, h("h2", {}, t("page.failed")), h("p", {}, problem.told),
      again ? h("button", {type: "button", onclick: again}, t("page.again")) : null)));
}

export const loading = () => h("p", {class: "muted loading"}, t("page.loading"));
