// The editor: CodeMirror where the gateway has it, a plain field where not, behind one face.

import {h} from "./dom.js";

const PLACE = "/static/codemirror";
// Our languages begin with these words (cpp20, python3 …); which file colours them, and how.
const MODES = [
  [/^cpp|^c\+\+/, "clike", "text/x-c++src"],
  [/^c(\d|$)/, "clike", "text/x-csrc"],
  [/^java(\d|$)/, "clike", "text/x-java"],
  [/^(kotlin)/, "clike", "text/x-kotlin"],
  [/^(csharp|cs)/, "clike", "text/x-csharp"],
  [/^(javascript|node|js)/, "javascript", "text/javascript"],
  [/^(typescript|ts)/, "javascript", "text/typescript"],
  [/^(python|pypy)/, "python", "text/x-python"],
  [/^(bash|sh)/, "shell", "text/x-sh"],
  [/^go/, "go", "text/x-go"],
  [/^haskell/, "haskell", "text/x-haskell"],
  [/^lua/, "lua", "text/x-lua"],
  [/^ocaml/, "mllike", "text/x-ocaml"],
  [/^pascal/, "pascal", "text/x-pascal"],
  [/^perl/, "perl", "text/x-perl"],
  [/^ruby/, "ruby", "text/x-ruby"],
  [/^rust/, "rust", "text/x-rustsrc"],
  [/^php/, "php", "text/x-php"],
  [/^awk/, "clike", "text/x-csrc"],
];
const NEEDS = {
  rust: ["addon/mode/simple.js"],
  php: ["mode/xml/xml.js", "mode/javascript/javascript.js", "mode/css/css.js", "mode/htmlmixed/htmlmixed.js", "mode/clike/clike.js"],
};
const FILES = {
  c: "main.c", go: "main.go", haskell: "Main.hs", java: "Main.java", javascript: "main.js", lua: "main.lua",
  ocaml: "main.ml", pascal: "main.pas", perl: "main.pl", php: "main.php", python: "main.py", ruby: "main.rb",
  rust: "main.rs", bash: "main.sh", awk: "main.awk",
};
export const fileNameOf = (language) =>
  FILES[language] ?? (/^cpp|^c\+\+/.test(language) ? "main.cpp" : FILES[language.replace(/[\d.]+$/, "")] ?? "main.txt");

const loaded = new Map();

function loadScript(path) {
  if (!loaded.has(path)) {
    loaded.set(path, new Promise((resolve, reject) => {
      document.head.append(h("script", {src: `${PLACE}/${path}`, onload: resolve, onerror: () => reject(new Error(path))}));
    }));
  }
  return loaded.get(path);
}

function loadStyle(path) {
  if (document.querySelector(`link[href="${PLACE}/${path}"]`)) return;
  document.head.prepend(h("link", {rel: "stylesheet", href: `${PLACE}/${path}`}));
}

async function load(available) {
  if (!available) return null;
  try {
    loadStyle("lib/codemirror.css");
    await loadScript("lib/codemirror.js");
    await Promise.all(["addon/edit/matchbrackets.js", "addon/edit/closebrackets.js", "addon/runmode/runmode.js"].map(loadScript));
    return window.CodeMirror;
  } catch {
    return null; // the plain field does as well
  }
}

async function loadMode(language) {
  const found = MODES.find(([pattern]) => pattern.test(language ?? ""));
  if (!found) return null;
  const [, name, kind] = found;
  try {
    for (const path of NEEDS[name] ?? []) await loadScript(path);
    await loadScript(`mode/${name}/${name}.js`);
    return kind;
  } catch {
    return null;
  }
}

/** Turns a textarea into an editor: {get, set, setLanguage, focus, onChange, close}. */
export function makeEditor(area, {available, label, submit}) {
  let code = null;
  let language = "";
  let closed = false;
  let changed = () => {};
  area.addEventListener("input", () => changed());
  area.setAttribute("aria-label", label);

  const applyMode = async () => {
    const wanted = language;
    const kind = await loadMode(wanted);
    if (code && wanted === language) code.setOption("mode", kind);
  };

  load(available).then((CodeMirror) => {
    if (!CodeMirror || closed) return;
    const focused = document.activeElement === area;
    code = CodeMirror.fromTextArea(area, {
      lineNumbers: true,
      matchBrackets: true,
      autoCloseBrackets: true,
      indentUnit: 4,
      viewportMargin: 40,
      inputStyle: "textarea",
      screenReaderLabel: label,
    });
    // Tab indents; after Escape it leaves the editor, so that the keyboard alone gets out again.
    const keys = {"Ctrl-Enter": submit, "Cmd-Enter": submit, Esc: () => code.setOption("extraKeys", {...keys, Tab: false, "Shift-Tab": false})};
    code.setOption("extraKeys", keys);
    code.on("blur", () => code.setOption("extraKeys", keys));
    code.on("change", () => changed());
    if (focused) code.focus();
    area.dispatchEvent(new CustomEvent("ready"));
    applyMode();
  });

  return {
    get: () => (code ? code.getValue() : area.value),
    set: (text) => (code ? code.setValue(text) : (area.value = text)),
    setLanguage: (name) => {
      language = name;
      if (code) applyMode();
    },
    focus: () => (code ? code.focus() : area.focus()),
    onChange: (act) => { changed = act; },
    close: () => { closed = true; },
  };
}

/** Source for reading: coloured where possible, and text in any case. */
export async function paint(element, text, language, available) {
  element.textContent = text;
  const CodeMirror = await load(available);
  const kind = CodeMirror && (await loadMode(language));
  if (!kind || !element.isConnected) return;
  element.textContent = "";
  element.classList.add("cm-s-default");
  // runMode hands over every word as text; the element is filled by text nodes only.
  CodeMirror.runMode(text, kind, (word, style) => {
    if (style) element.append(h("span", {class: style.split(" ").map((one) => `cm-${one}`).join(" ")}, word));
    else element.append(document.createTextNode(word));
  });
}
