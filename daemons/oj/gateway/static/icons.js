// Line icons, drawn by hand: paths in a box of 24 by 24.

import {svg} from "./dom.js";

const PATHS = {
  dashboard: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z",
  submit: "M12 16V5M7 9.5 12 4.5l5 5M4.5 15v3.5a1 1 0 0 0 1 1h13a1 1 0 0 0 1-1V15",
  tasks: "M9 6h11M9 12h11M9 18h11M4 6l.9.9L6.5 5M4 12l.9.9 1.6-1.9M4 18l.9.9 1.6-1.9",
  executors: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  cluster: "M12 8.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM5.5 20.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM18.5 20.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM11 8.3 6.7 15.8M13 8.3l4.3 7.5M8 18h8",
  tokens: "M8 15.5a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 11.5h9M18 11.5v3.5",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  auto: "M12 20.5a8.5 8.5 0 1 0 0-17 8.5 8.5 0 0 0 0 17zM12 3.5v17",
  keyboard: "M3.5 6.5h17v11h-17zM7 10h.01M10.5 10h.01M14 10h.01M17 10h.01M8 14h8",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6.5 6.5l11 11M17.5 6.5l-11 11",
  clock: "M12 20.5a8.5 8.5 0 1 0 0-17 8.5 8.5 0 0 0 0 17zM12 7.5V12l3 2",
  memory: "M5 5h14v14H5zM9 9h6v6H9z",
  output: "M6 3.5h8l4 4v13H6zM9 12h6M9 15.5h6",
  bolt: "M13 3 5.5 13.5H11L10.5 21 18 10.5h-5.5z",
  braces: "M9 4.5c-2.5 0-2.5 1.5-2.5 3.5S6 12 4.5 12C6 12 6.5 14 6.5 16s0 3.500 2.500 3.500M15 4.500c2.500 0 2.500 1.500 2.500 3.500s.5 4 2 4c-1.500 0-2 2-2 4s0 3.500-2.500 3.500",
  pause: "M9 6v12M15 6v12",
  dots: "M6 12h.01M12 12h.01M18 12h.01",
  download: "M12 4.500V15M7 10.500l5 5 5-5M4.500 19.500h15",
  copy: "M9 9h10.500v10.500H9zM5 15H4.500V4.500H15V5",
  plus: "M12 5v14M5 12h14",
  trash: "M5 7h14M10 7V4.500h4V7M7 7l.8 12.500h8.400L17 7M10.500 10.500v5.500M13.500 10.500v5.500",
  retry: "M19.500 12a7.500 7.500 0 1 1-2.200-5.300L19.500 9M19.500 4.500V9H15",
  edit: "M5 19h3.500L18.500 9l-3.500-3.500L5 15.500z",
  chevron: "M9 6l6 6-6 6",
  warning: "M12 4 2.800 19.500h18.400zM12 10v4.500M12 17h.01",
  file: "M6.500 3.500h7.500l3.500 3.500v13.500h-11zM14 3.500V7h3.500",
};

/** Decoration beside words: hidden from screen readers. */
export function icon(name, properties = {}) {
  return svg("svg", {viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false", ...properties},
    svg("path", {d: PATHS[name] ?? PATHS.dots}));
}
