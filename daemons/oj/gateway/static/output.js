// Bytes that programs wrote, as people can read them: text, broken text, or no text at all; large
// ones by their beginning. The exact bytes are a download.

import {address, peek} from "./api.js";
import {commonEnds, diffLines, fold} from "./diff.js";
import {h} from "./dom.js";
import {size} from "./format.js";
import {icon} from "./icons.js";
import {t} from "./words.js";

export const SHOWN_BYTES = 64 * 1024;
const SHOWN_LINES = 600;
const LONGEST_LINE = 600;
const HEX_BYTES = 256;

/** {kind: "text" | "broken" | "binary", text}; the last letter may be cut in half. */
export function decode(bytes, whole) {
  try {
    const text = new TextDecoder("utf-8", {fatal: true}).decode(bytes, {stream: !whole});
    return {kind: countControls(text) ? "binary" : "text", text};
  } catch {
    const text = new TextDecoder("utf-8").decode(bytes);
    const odd = countControls(text) + (text.match(/\uFFFD/g)?.length ?? 0);
    return {kind: odd > text.length * 0.3 || text.includes("\0") ? "binary" : "broken", text};
  }
}

function countControls(text) {
  // eslint-disable-next-line no-control-regex
  return text.match(/[\0-\x08\x0e-\x1a\x1c-\x1f]/g)?.length ?? 0;
}

export const isBinary = ({bytes, total}) => decode(bytes, bytes.length === total).kind === "binary";

export function hexDump(bytes, from = 0) {
  const lines = [];
  const end = Math.min(bytes.length, from + HEX_BYTES);
  for (let at = from; at < end; at += 16) {
    const row = [...bytes.slice(at, Math.min(at + 16, end))];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

export function downloadLink(id, rest, name) {
  return h("a", {class: "download", href: address(id, ...rest), download: true, "aria-label": t("task.download.of", {name})}, icon("download"), t("task.download"));
}

/** Lines of a shown text; long ones are cut, `from` keeps the place of a difference in sight. */
function cutLine(text, from = 0) {
  const start = from > LONGEST_LINE - 200 ? from - 80 : 0;
  const shown = text.slice(start, start + LONGEST_LINE);
  return {shown, start, left: text.length - start - shown.length};
}

function cutText(text) {
  const lines = text.split("\n");
  const shown = lines.slice(0, SHOWN_LINES).map((line) => {
    const cut = cutLine(line);
    return cut.left > 0 ? `${cut.shown}${t("task.longline", {n: cut.left})}` : cut.shown;
  });
  return shown.join("\n") + (lines.length > SHOWN_LINES ? "\n…" : "");
}

export function showBytes(bytes, total) {
  const notes = [];
  const {kind, text} = decode(bytes, bytes.length === total);
  if (kind === "binary") notes.push(t("task.binary", {shown: size(Math.min(HEX_BYTES, bytes.length))}));
  else if (kind === "broken") notes.push(t("task.invalid"));
  if (total > bytes.length) notes.push(t("task.beginning", {shown: size(bytes.length), total: size(total)}));
  const shown = kind === "binary" ? hexDump(bytes) : cutText(text);
  return [
    notes.map((note) => h("p", {class: "note"}, note)),
    total === 0 ? h("p", {class: "muted"}, t("task.empty")) : h("pre", {class: "output", tabindex: "0"}, shown),
  ];
}

/** A titled stream of a task, loaded when it is shown. */
export async function loadStream(id, rest, empty, signal) {
  return empty ? {bytes: new Uint8Array(), total: 0} : peek(id, rest, SHOWN_BYTES, signal);
}

export function section(title, link, ...content) {
  return h("section", {class: "stream"}, h("div", {class: "row between"}, h("h3", {}, title), link), content);
}

// ----------------------------------------------------------------- difference

function splitLines(text) {
  const lines = text.split("\n");
  const closed = lines.at(-1) === "";
  if (closed) lines.pop();
  return {lines, closed: closed || text === ""};
}

const words = (text) => text.split(/\s+/).filter(Boolean).join(" ");

/** Marks what is only in this line; white space at its end can be seen. */
function markLine(text, other) {
  const [start, ends] = other === undefined ? [0, text.length] : commonEnds(text, other);
  const cut = cutLine(text, start);
  const from = Math.min(cut.shown.length, Math.max(0, start - cut.start));
  const to = Math.max(from, Math.min(cut.shown.length, text.length - ends - cut.start));
  const marked = cut.shown.slice(from, to).replace(/ +$/, (spaces) => "·".repeat(spaces.length)).replaceAll("\t", "→\t").replaceAll("\r", "␍");
  return [
    cut.start > 0 ? "…" : "",
    cut.shown.slice(0, from),
    other === undefined || from === to ? cut.shown.slice(from, to) : h("mark", {}, marked),
    cut.shown.slice(to),
    cut.left > 0 ? h("span", {class: "muted"}, t("task.longline", {n: cut.left})) : "",
  ];
}

export function showDifference(expected, actual, {cut, exact}) {
  const a = decode(expected.bytes, expected.bytes.length === expected.total);
  const b = decode(actual.bytes, actual.bytes.length === actual.total);
  const whole = expected.bytes.length === expected.total && actual.bytes.length === actual.total && !cut;
  if (a.kind === "binary" || b.kind === "binary") return showBinaryDifference(expected.bytes, actual.bytes, whole);
  if (a.text === b.text) return [h("p", {class: "muted"}, t(whole ? "task.same" : "task.differ.beyond"))];
  const notes = [];
  if (whole && words(a.text) === words(b.text)) notes.push(h("p", {class: "note"}, t("task.samewords")));
  const left = splitLines(a.text);
  const right = splitLines(b.text);
  const entries = fold(diffLines(left.lines.slice(0, SHOWN_LINES), right.lines.slice(0, SHOWN_LINES)));
  if (exact && whole && left.closed !== right.closed) notes.push(h("p", {class: "note"}, `${t(left.closed ? "task.diff.plus" : "task.diff.minus")}: ${t("task.nonewline")}`));
  return [notes, h("p", {class: "legend muted"}, t("task.diff.legend")), drawEntries(entries)];
}

function drawEntries(entries) {
  const body = h("tbody");
  entries.forEach((entry, at) => {
    if (entry.kind === "hidden") {
      body.append(h("tr", {class: "skip"}, h("td", {colspan: 4}, t("task.same.hidden", {n: entry.count}))));
      return;
    }
    // The line that stands in its place, if there is one: then only what differs is marked.
    const other = entry.kind === "minus" ? partner(entries, at, "plus") : entry.kind === "plus" ? partner(entries, at, "minus") : undefined;
    const sign = {same: " ", minus: "−", plus: "+"}[entry.kind];
    body.append(h("tr", {class: entry.kind},
      h("td", {class: "number"}, entry.left ?? ""), h("td", {class: "number"}, entry.right ?? ""),
      h("td", {class: "sign"}, h("span", {"aria-hidden": "true"}, sign), entry.kind === "same" ? null : h("span", {class: "hidden"}, t(`task.diff.${entry.kind}`))),
      h("td", {class: "line"}, markLine(entry.text, other?.text))));
  });
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": t("task.difference")}, h("table", {class: "diff"}, body));
}

/** In a block of removed lines followed by added ones, the n-th belongs to the n-th. */
function partner(entries, at, kind) {
  const own = entries[at].kind;
  let first = at;
  while (first > 0 && (entries[first - 1].kind === "minus" || entries[first - 1].kind === "plus")) first -= 1;
  let last = at;
  while (last + 1 < entries.length && (entries[last + 1].kind === "minus" || entries[last + 1].kind === "plus")) last += 1;
  const block = entries.slice(first, last + 1);
  const nth = block.filter((entry, i) => entry.kind === own && first + i < at).length;
  return block.filter((entry) => entry.kind === kind)[nth];
}

function showBinaryDifference(expected, actual, whole) {
  let at = 0;
  while (at < expected.length && at < actual.length && expected[at] === actual[at]) at += 1;
  if (at === expected.length && at === actual.length) return [h("p", {class: "muted"}, t(whole ? "task.same" : "task.differ.beyond"))];
  const from = Math.max(0, (at - 32) & ~15);
  return [
    h("p", {class: "note"}, t("task.differ.byte", {n: at + 1})),
    h("div", {class: "pair wide"}, [["task.diff.minus", expected], ["task.diff.plus", actual]].map(([key, bytes]) =>
      h("div", {}, h("p", {class: "muted"}, t(key)), h("pre", {class: "output", tabindex: "0"}, hexDump(bytes, from))))),
  ];
}
