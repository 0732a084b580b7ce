// Charts as SVG by hand: bars over time, lines over time, shares. Each has words that say the same.

import {h, replace, svg} from "./dom.js";
import {clock, percent} from "./format.js";
import {lookOf} from "./parts.js";
import {t, word} from "./words.js";

const HEIGHT = 180;
const PAD = {top: 10, right: 8, bottom: 22, left: 54};

/** A round number not below `value`: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

function frame(width, label) {
  return svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label, class: "chart"});
}

const inner = (width) => ({x0: PAD.left, x1: width - PAD.right, y0: PAD.top, y1: HEIGHT - PAD.bottom});

function axes(root, width, slots, ticks, place, text) {
  const {x0, x1, y1} = inner(width);
  for (const tick of ticks) {
    const y = place(tick);
    root.append(svg("line", {x1: x0, x2: x1, y1: y, y2: y, class: "grid-line"}), svg("text", {x: x0 - 6, y: y + 4, class: "tick end"}, text(tick)));
  }
  const step = Math.max(1, Math.ceil(slots.length / Math.max(2, Math.floor((x1 - x0) / 90))));
  const slotWidth = (x1 - x0) / slots.length;
  for (let i = 0; i < slots.length; i += step) {
    const x = x0 + slotWidth * (i + 0.5);
    if (x > x1 - 20 && i > 0) break;
    root.append(svg("text", {x, y: y1 + 16, class: "tick middle"}, clock(slots[i].time)));
  }
}

/** Stacked bars {key, look}, if wanted with a line on top {key}; a rate is a slot's number a minute. */
export function drawBars(place, slots, stack, line, label, {rate = true} = {}) {
  const width = Math.max(280, place.clientWidth);
  const {x0, x1, y0, y1} = inner(width);
  const share = (slot) => (rate ? slot.width : 1);
  const most = roundUp(Math.max(1, ...slots.map((slot) => Math.max(stack.reduce((sum, {key}) => sum + slot[key], 0), line ? slot[line.key] : 0) / share(slot))));
  const y = (value) => y1 - (value / most) * (y1 - y0);
  const root = frame(width, label);
  axes(root, width, slots, [0, most / 2, most], y, (tick) => (Number.isInteger(tick) ? tick : tick.toFixed(1)));
  const slotWidth = (x1 - x0) / slots.length;
  slots.forEach((slot, i) => {
    let below = 0;
    for (const {key, look} of stack) {
      const value = slot[key] / share(slot);
      if (!value) continue;
      const top = y(below + value);
      root.append(svg("rect", {x: x0 + slotWidth * i + slotWidth * 0.12, y: top, width: Math.max(1, slotWidth * 0.76), height: Math.max(0.5, y(below) - top), rx: Math.min(2, slotWidth / 5), class: look}));
      below += value;
    }
  });
  if (line) {
    const points = slots.map((slot, i) => `${(x0 + slotWidth * (i + 0.5)).toFixed(1)},${y(slot[line.key] / share(slot)).toFixed(1)}`);
    root.append(svg("polyline", {points: points.join(" "), class: `line ${line.look}`}));
  }
  replace(place, root);
}

// Where a logarithmic scale of times has its lines: those that people call round, in ms.
const ROUND_MS = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000];
const MOST_TICKS = 5;

/** The round times from the one below all values to the one above them. */
export function scaleOf(values) {
  const low = Math.min(...values, 1000);
  const high = Math.max(...values, 1);
  const first = Math.max(0, ROUND_MS.findLastIndex((value) => value <= low));
  const above = ROUND_MS.findIndex((value) => value >= high);
  const last = Math.max(first + 1, above < 0 ? ROUND_MS.length - 1 : above);
  const step = Math.ceil((last - first) / MOST_TICKS);
  return ROUND_MS.slice(first, last + 1).filter((_, i) => (last - first - i) % step === 0 || i === 0);
}

/** Lines over time on a logarithmic scale; where there is no value, a line has a gap. */
export function drawLines(place, slots, lines, text, label) {
  const width = Math.max(280, place.clientWidth);
  const {x0, x1, y0, y1} = inner(width);
  const values = lines.flatMap(({values: list}) => list.filter((value) => value !== null));
  const ticks = scaleOf(values);
  const [low, high] = [ticks[0], ticks.at(-1)].map(Math.log10);
  const y = (value) => y1 - ((Math.log10(Math.min(ticks.at(-1), Math.max(ticks[0], value))) - low) / (high - low)) * (y1 - y0);
  const root = frame(width, label);
  axes(root, width, slots, ticks, y, text);
  const slotWidth = (x1 - x0) / slots.length;
  for (const {values: list, look} of lines) {
    let points = [];
    const flush = () => {
      if (points.length > 1) root.append(svg("polyline", {points: points.join(" "), class: `line ${look}`}));
      else if (points.length === 1) {
        const [x, at] = points[0].split(",");
        root.append(svg("circle", {cx: x, cy: at, r: 3, class: `dot ${look}`}));
      }
      points = [];
    };
    list.forEach((value, i) => {
      if (value === null) flush();
      else points.push(`${(x0 + slotWidth * (i + 0.5)).toFixed(1)},${y(value).toFixed(1)}`);
    });
    flush();
  }
  replace(place, root);
}

/** One bar of shares with a list that says the same in numbers. */
export function drawShares(place, counts) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const entries = Object.entries(counts).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  if (!all) {
    replace(place, h("p", {class: "muted"}, t("dashboard.none")));
    return;
  }
  const whole = svg("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "shares", "aria-hidden": "true"});
  let x = 0;
  // Verdicts of one kind have one colour, in different strength.
  const used = {};
  const looks = entries.map(([name]) => {
    const [kind] = lookOf(name);
    used[kind] = (used[kind] ?? -1) + 1;
    return `${kind} shade-${used[kind] % 3}`;
  });
  entries.forEach(([, n], i) => {
    const width = (n / all) * 100;
    whole.append(svg("rect", {x, y: 0, width: Math.max(0.2, width - 0.35), height: 8, class: looks[i]}));
    x += width;
  });
  replace(place, whole, h("ul", {class: "legend-list"}, entries.map(([name, n], i) => h("li", {},
    h("span", {class: `key ${looks[i]}`, "aria-hidden": "true"}), h("span", {class: "grow"}, word("verdict", name)),
    h("span", {class: "number"}, n), h("strong", {class: "number"}, percent(n / all, n / all < 0.1 ? 1 : 0))))));
}

export function legend(entries) {
  return h("ul", {class: "legend-row"}, entries.map(([look, text]) => h("li", {}, h("span", {class: `key ${look}`, "aria-hidden": "true"}), text)));
}
