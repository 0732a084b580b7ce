// Numbers, times and sizes as people read them; pure functions.

import {language} from "./words.js";

const number = (value, digits = 0) =>
  value.toLocaleString(language(), {maximumFractionDigits: digits, minimumFractionDigits: 0});

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return `${number(ms, 2)} ms`;
  if (ms < 10) return `${number(ms, 1)} ms`;
  if (ms < 1000) return `${number(ms)} ms`;
  if (ms < 10_000) return `${number(ms / 1000, 2)} s`;
  if (ms < 60_000) return `${number(ms / 1000, 1)} s`;
  if (ms < 3_600_000) return [`${Math.floor(ms / 60_000)} min`, ms % 60_000 < 1000 ? "" : `${Math.floor((ms % 60_000) / 1000)} s`].join(" ").trim();
  if (ms < 86_400_000) return [`${Math.floor(ms / 3_600_000)} h`, ms % 3_600_000 < 60_000 ? "" : `${Math.floor((ms % 3_600_000) / 60_000)} min`].join(" ").trim();
  return `${number(ms / 86_400_000, 1)} d`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1024) return `${number(bytes)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = "";
  for (unit of units) {
    value /= 1024;
    if (value < 1024) break;
  }
  return `${number(value, value < 10 ? 1 : 0)} ${unit}`;
}

/** The time of day, with the date unless it is today. */
export function moment(text, {precise = false} = {}) {
  if (!text) return "–";
  const then = new Date(text);
  const options = {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"};
  if (precise) options.fractionalSecondDigits = 3;
  if (then.toDateString() !== new Date().toDateString()) {
    Object.assign(options, {day: "2-digit", month: "2-digit", year: "numeric"});
  }
  return then.toLocaleString(language(), options);
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString(language(), {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
}

export function percent(share, digits = 0) {
  return share.toLocaleString(language(), {style: "percent", maximumFractionDigits: digits});
}

export const count = (value) => number(value ?? 0);

/** The last letters of an id tell tasks apart; the first are its time. */
export const shortId = (id) => (id.length > 10 ? `…${id.slice(-8)}` : id);
