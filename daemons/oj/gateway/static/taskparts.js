// What else belongs to a task: the compiler's words, files, details, attempts.

import {peek} from "./api.js";
import {h, replace} from "./dom.js";
import {paint} from "./editor.js";
import {duration, moment, size} from "./format.js";
import {decode, downloadLink, SHOWN_BYTES, showBytes} from "./output.js";
import {loading, showFailure} from "./parts.js";
import {t, word} from "./words.js";

export function drawCompile(task) {
  const {compile, id} = task;
  if (!compile) return null;
  const failed = task.verdict === "compile_error";
  const encode = (text) => new TextEncoder().encode(text);
  const streams = [["stderr", compile.stderr, compile.stderr_cut], ["stdout", compile.stdout, compile.stdout_cut]].filter(([, text]) => text);
  return h("details", {class: "card", open: failed || streams.length > 0},
    h("summary", {}, h("h2", {}, t("task.compile")), h("span", {class: "muted"}, `${duration(compile.wall_ms)} · ${size(compile.memory_bytes)}`)),
    streams.length ? streams.map(([name, text, cut]) => {
      const bytes = encode(text);
      return h("div", {class: "stream", id: `compile-${name}`}, h("div", {class: "row end"}, downloadLink(id, ["compile", name], `compile.${name}`)),
        cut ? h("p", {class: "note"}, t("task.cut")) : null,
        showBytes(bytes.slice(0, SHOWN_BYTES), bytes.length));
    }) : h("p", {class: "muted"}, t("task.compile.silent")));
}

export function drawFiles(task, available, signal) {
  const given = task.task;
  if (!given || (!given.source.length && !given.data.length)) return null;
  return h("section", {class: "card", "aria-labelledby": "task-source"}, h("h2", {id: "task-source"}, t("task.source")),
    given.source.map((file, at) => drawSource(task, file, at === 0, available, signal)),
    given.data.length ? [h("h3", {}, t("task.data")), h("ul", {class: "files"}, given.data.map((file) =>
      h("li", {}, h("span", {class: "name"}, file.name), h("span", {class: "muted"}, size(file.size)), downloadLink(task.id, ["data", file.name], file.name))))] : null);
}

function drawSource(task, file, open, available, signal) {
  const body = h("div", {}, loading());
  let asked = false;
  const load = async () => {
    if (asked) return;
    asked = true;
    try {
      const {bytes, total} = file.size === 0 ? {bytes: new Uint8Array(), total: 0} : await peek(task.id, ["source", file.name], SHOWN_BYTES, signal);
      const {kind, text} = decode(bytes, bytes.length === total);
      if (kind !== "text" || total > SHOWN_BYTES || total === 0) {
        replace(body, showBytes(bytes, total));
        return;
      }
      const code = h("pre", {class: "output source", tabindex: "0", "aria-label": file.name});
      replace(body, code);
      await paint(code, text, task.language, available);
    } catch (problem) {
      asked = false;
      showFailure(body, problem, load);
    }
  };
  const details = h("details", {class: "source", open, ontoggle: () => details.open && load()},
    h("summary", {}, h("span", {class: "name"}, file.name), h("span", {class: "muted"}, file.size === null ? "" : size(file.size))),
    h("div", {class: "row end"}, downloadLink(task.id, ["source", file.name], file.name)), body);
  return details;
}

const LIMITS = {cpu_ms: duration, wall_ms: duration, memory_bytes: size, output_bytes: size, processes: String, disk_bytes: size};

export function drawFacts(task) {
  const given = task.task;
  const limits = Object.entries(given?.execute?.limits ?? {}).map(([name, value]) => {
    return `${word("limit", name)} ${(LIMITS[name] ?? String)(value)}`;
  });
  const tags = task.tags?.length ? h("span", {class: "tags"}, task.tags.map((tag) => h("a", {class: "tag", href: `/tasks?tag=${encodeURIComponent(tag)}`}, tag))) : null;
  const rows = [
    ["tasks.id", h("code", {}, task.id)],
    ["task.language", task.language],
    ["task.user", task.user ? h("a", {href: `/tasks?user=${encodeURIComponent(task.user)}`}, task.user) : null],
    ["task.executor", task.executor ? h("a", {href: `/tasks?executor=${encodeURIComponent(task.executor)}`}, task.executor) : null],
    ["tasks.added", moment(task.add_time, {precise: true})],
    ["task.tags", tags],
    ["task.priority", task.priority ? String(task.priority) : null],
    ["task.compare", given ? t(`submit.compare.${given.compare}`) : null],
    ["task.limits", limits.join(" · ") || null],
    ["task.command", given?.execute?.command ? h("code", {}, given.execute.command.join(" ")) : null],
    // What the gateway made up itself tells nobody anything.
    ["task.key", /^[0-9a-f]{32}$/.test(task.key ?? "") ? null : task.key],
  ].filter(([, value]) => value);
  return h("section", {class: "card", "aria-labelledby": "task-facts"}, h("h2", {id: "task-facts"}, t("task.facts")),
    h("dl", {class: "facts"}, rows.map(([key, value]) => h("div", {}, h("dt", {}, t(key)), h("dd", {}, value)))));
}

export function drawAttempts(task) {
  if (!task.attempts?.length) return null;
  const last = task.attempts.length - 1;
  return h("section", {class: "card", "aria-labelledby": "task-attempts"}, h("h2", {id: "task-attempts"}, t("task.attempts")),
    h("ol", {class: "attempts"}, task.attempts.map((one, at) => h("li", {},
      h("strong", {}, one.executor), " ", h("span", {class: "muted"}, moment(one.start_time)),
      h("div", {}, one.ended ?? t(at === last && task.done ? "task.attempt.result" : "task.attempt.now"))))));
}

