// What the history's histograms tell; pure. Entry i counts what took less than bounds[i] and not
// less than the one before; the last has no bound.

export function addUp(lists) {
  const found = [];
  for (const list of lists) list.forEach((count, i) => { found[i] = (found[i] ?? 0) + count; });
  return found;
}

export const total = (counts) => counts.reduce((sum, count) => sum + count, 0);

/** The value that the share `p` of all lies below: between the bounds by proportion. */
export function percentile(counts, boundsMs, p) {
  const all = total(counts);
  if (!all) return null;
  let left = p * all;
  for (let i = 0; i < counts.length; i += 1) {
    if (!counts[i]) continue;
    if (left <= counts[i]) {
      const low = i === 0 ? 0 : boundsMs[i - 1];
      const high = boundsMs[i] ?? boundsMs.at(-1) * 2;
      return low + (high - low) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return boundsMs.at(-1);
}

/** How many tasks were open at the end of each minute of the range, from how many are now: pure. */
function countOpen(minutes, first, last, openNow) {
  const found = new Array(last - first + 1).fill(0);
  const change = new Map(minutes.map((minute) => [
    Math.floor(Date.parse(minute.time) / 60_000),
    minute.added - Object.values(minute.ended).reduce((sum, n) => sum + n, 0),
  ]));
  let open = openNow;
  for (let at = last; at >= first; at -= 1) {
    found[at - first] = open;
    // A judicator that was killed has lost a second's counts: then it does not come out even.
    open = Math.max(0, open - (change.get(at) ?? 0));
  }
  return found;
}

/** Minutes put together into at most `most` slots, each {time, added, accepted, others, verdicts, waiting, judging, open}. */
export function group(minutes, rangeMinutes, most, nowMs, openNow = 0) {
  const width = Math.max(1, Math.ceil(rangeMinutes / most));
  const last = Math.floor(nowMs / 60_000);
  const first = last - rangeMinutes + 1;
  const slots = [];
  const open = countOpen(minutes, first, last, openNow);
  for (let at = first; at <= last; at += width) {
    slots.push({
      time: at * 60_000, width: Math.min(width, last - at + 1), added: 0, accepted: 0, others: 0, verdicts: {}, waiting: [], judging: [],
      open: Math.max(...open.slice(at - first, at - first + width)),
    });
  }
  for (const minute of minutes) {
    const slot = slots[Math.floor((Math.floor(Date.parse(minute.time) / 60_000) - first) / width)];
    if (!slot) continue;
    const ended = Object.values(minute.ended).reduce((sum, n) => sum + n, 0);
    const accepted = minute.verdicts.accepted ?? 0;
    slot.added += minute.added;
    slot.accepted += accepted;
    slot.others += Math.max(0, ended - accepted);
    for (const [name, n] of Object.entries(minute.verdicts)) slot.verdicts[name] = (slot.verdicts[name] ?? 0) + n;
    slot.waiting = addUp([slot.waiting, minute.waiting]);
    slot.judging = addUp([slot.judging, minute.judging]);
  }
  return slots;
}
