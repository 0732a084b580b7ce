// The difference between two texts, line by line; pure. Myers' algorithm with a bound: where two
// texts have little in common, they are set side by side instead, which tells as much.

const MOST_STEPS = 400;
const CONTEXT = 3;

/** Entries {kind: "same" | "minus" | "plus", text}, in order. */
export function diffLines(expected, actual) {
  let start = 0;
  while (start < expected.length && start < actual.length && expected[start] === actual[start]) start += 1;
  let ends = 0;
  while (ends < expected.length - start && ends < actual.length - start
    && expected[expected.length - 1 - ends] === actual[actual.length - 1 - ends]) ends += 1;
  const a = expected.slice(start, expected.length - ends);
  const b = actual.slice(start, actual.length - ends);
  const same = (text) => ({kind: "same", text});
  return [
    ...expected.slice(0, start).map(same),
    ...(myers(a, b) ?? pairUp(a, b)),
    ...expected.slice(expected.length - ends).map(same),
  ];
}

function pairUp(a, b) {
  const found = [];
  for (let i = 0; i < Math.max(a.length, b.length); i += 1) {
    if (i < a.length && a[i] === b[i]) found.push({kind: "same", text: a[i]});
    else {
      if (i < a.length) found.push({kind: "minus", text: a[i]});
      if (i < b.length) found.push({kind: "plus", text: b[i]});
    }
  }
  return found;
}

function myers(a, b) {
  const most = Math.min(a.length + b.length, MOST_STEPS);
  const trace = [];
  let reach = new Map([[1, 0]]);
  for (let d = 0; d <= most; d += 1) {
    trace.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? reach.get(k + 1) ?? 0 : (reach.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x += 1;
        y += 1;
      }
      reach.set(k, x);
      if (x >= a.length && y >= b.length) return walkBack(a, b, trace, d);
    }
  }
  return null;
}

function walkBack(a, b, trace, steps) {
  const found = [];
  let x = a.length;
  let y = b.length;
  for (let d = steps; d >= 0; d -= 1) {
    const reach = trace[d];
    const k = x - y;
    const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : reach.get(fromK) ?? 0;
    const fromY = d === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x -= 1;
      y -= 1;
      found.push({kind: "same", text: a[x]});
    }
    if (d === 0) break;
    if (down) {
      y -= 1;
      found.push({kind: "plus", text: b[y]});
    } else {
      x -= 1;
      found.push({kind: "minus", text: a[x]});
    }
  }
  return found.reverse();
}

/** Long runs of equal lines become {kind: "hidden", count}; lines get the numbers they have. */
export function fold(entries) {
  const found = [];
  let left = 0;
  let right = 0;
  const near = entries.map(() => false);
  entries.forEach((entry, i) => {
    if (entry.kind === "same") return;
    for (let j = Math.max(0, i - CONTEXT); j <= Math.min(entries.length - 1, i + CONTEXT); j += 1) near[j] = true;
  });
  entries.forEach((entry, i) => {
    if (entry.kind !== "plus") left += 1;
    if (entry.kind !== "minus") right += 1;
    if (near[i]) found.push({...entry, left: entry.kind === "plus" ? null : left, right: entry.kind === "minus" ? null : right});
    else if (found.at(-1)?.kind === "hidden") found.at(-1).count += 1;
    else found.push({kind: "hidden", count: 1});
  });
  return found;
}

/** How much of the beginning and of the end two lines have in common. */
export function commonEnds(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let ends = 0;
  while (ends < a.length - start && ends < b.length - start && a[a.length - 1 - ends] === b[b.length - 1 - ends]) ends += 1;
  return [start, ends];
}
