// Submit a program: the editor, files, tests, limits. What was typed is kept until it is submitted.

import {ask, has, peek, who} from "../api.js";
import {arrange, choice, field, h, replace} from "../dom.js";
import {fileNameOf, makeEditor} from "../editor.js";
import {size} from "../format.js";
import {icon} from "../icons.js";
import {attempt, toast} from "../shell.js";
import {keep, kept, t} from "../words.js";

const DRAFT = "oj.draft";
const MOST_TEXT_BYTES = 512 * 1024;
const ARCHIVE = /\.(zip|tar|tgz|tar\.(gz|xz|bz2))$/i;
const MIB = 1024 * 1024;

function readDraft() {
  try {
    return JSON.parse(kept(DRAFT)) ?? {};
  } catch {
    return {};
  }
}

export const isText = (bytes) => {
  try {
    return !new TextDecoder("utf-8", {fatal: true}).decode(bytes).includes("\0");
  } catch {
    return false;
  }
};

/** The bytes as the API takes them inside JSON. */
function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function mount(root, {query, go, facts}) {
  const title = h("h1", {}, t("submit.title"));
  if (!has("submit")) {
    root.append(title, h("div", {class: "card"}, h("p", {}, t(who()?.anonymous ? "login.needed" : "login.denied")),
      who()?.anonymous ? h("a", {class: "button primary", href: "/login?next=/submit"}, t("nav.login")) : null));
    return undefined;
  }
  const draft = readDraft();
  const stop = new AbortController();
  const files = [];
  // Of a task that this one begins with: what cannot be changed here, and goes along as it is.
  let along = [];
  let rest = null;
  let tests = [];
  let archive = null;
  let key = newKey();
  let named = Boolean(draft.name);

  // ------------------------------------------------------------------ program

  const language = h("select", {name: "language"});
  const name = h("input", {name: "filename", value: draft.name ?? "", spellcheck: "false", autocapitalize: "off", maxlength: 255});
  const area = h("textarea", {name: "source", rows: 16, spellcheck: "false", autocapitalize: "off", class: "code", value: draft.text ?? ""});
  const editor = makeEditor(area, {available: facts.editor, label: t("submit.editor"), submit: () => send()});
  const picker = h("input", {type: "file", multiple: true, class: "hidden", name: "files", tabindex: "-1", "aria-label": t("submit.addfiles"), onchange: () => {
    addFiles([...picker.files]);
    picker.value = "";
  }});
  const list = h("ul", {class: "files", "aria-label": t("submit.morefiles")});

  function chooseLanguage() {
    editor.setLanguage(language.value);
    if (!named) name.value = fileNameOf(language.value);
    keep("oj.last-language", language.value);
  }
  language.addEventListener("change", chooseLanguage);
  name.addEventListener("input", () => { named = name.value !== ""; });

  async function addFiles(added) {
    for (const file of added) {
      const small = file.size <= MOST_TEXT_BYTES && !ARCHIVE.test(file.name);
      if (small && !editor.get().trim()) {
        const bytes = new Uint8Array(await file.arrayBuffer());
        if (isText(bytes)) {
          editor.set(new TextDecoder().decode(bytes));
          name.value = file.name;
          named = true;
          continue;
        }
        toast(t("submit.binary", {name: file.name}));
      }
      files.push(file);
    }
    drawFiles();
  }

  function drawFiles() {
    replace(list, files.map((file, at) => h("li", {}, icon("file"), h("span", {class: "name"}, file.name),
      h("span", {class: "muted"}, size(file.size), ARCHIVE.test(file.name) ? ` · ${t("submit.archive")}` : ""),
      h("button", {type: "button", class: "quiet square", "aria-label": t("submit.remove", {name: file.name}), onclick: () => {
        files.splice(at, 1);
        drawFiles();
      }}, icon("cross")))), along.map((one) => h("li", {}, icon("file"), h("span", {class: "name"}, one.name),
      h("span", {class: "muted"}, one.size === null ? "" : `${size(one.size)} · `, t(`submit.along.${one.kind}`)),
      h("button", {type: "button", class: "quiet square", "aria-label": t("submit.remove", {name: one.name}), onclick: () => {
        along = along.filter((other) => other !== one);
        drawFiles();
      }}, icon("cross")))));
    list.hidden = !files.length && !along.length;
  }

  const drop = h("div", {class: "drop"}, h("div", {class: "dropmark", "aria-hidden": "true"}, t("submit.drop")),
    h("div", {class: "row"},
      field(t("submit.language"), language, {grow: true}),
      field(t("submit.filename"), name, {grow: true}),
      h("button", {type: "button", class: "bottom", onclick: () => picker.click()}, icon("file"), t("submit.addfiles")), picker),
    h("div", {class: "editor"}, area), facts.editor ? h("small", {class: "hint wide-only"}, t("submit.tab")) : null, list);
  let inside = 0;
  drop.addEventListener("dragenter", (event) => {
    event.preventDefault();
    inside += 1;
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => {
    inside -= 1;
    if (inside <= 0) drop.classList.remove("over");
  });
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    inside = 0;
    drop.classList.remove("over");
    addFiles([...event.dataTransfer.files]);
  }, {capture: true});

  // -------------------------------------------------------------------- tests

  const testList = h("ol", {class: "testlist"});

  function makeTest(given = {}) {
    const test = {
      name: given.name ?? "",
      weight: given.weight ?? 1,
      fixed: given.fixed ?? null,
      input: h("textarea", {rows: 3, class: "code", name: "input", spellcheck: "false", value: given.input ?? ""}),
      expected: h("textarea", {rows: 3, class: "code", name: "expected", spellcheck: "false", value: given.expected ?? ""}),
      any: h("input", {type: "checkbox", name: "any", checked: Boolean(given.any)}),
      head: h("h3", {}),
      remove: h("button", {type: "button", class: "quiet square"}, icon("trash")),
    };
    const follow = () => { test.expected.disabled = test.any.checked; };
    test.any.addEventListener("change", follow);
    follow();
    test.remove.addEventListener("click", () => {
      tests = tests.filter((one) => one !== test);
      drawTests();
      adder.focus();
    });
    test.row = h("li", {class: "test"},
      h("div", {class: "row between"}, test.head, test.remove),
      test.fixed ? h("p", {class: "muted"}, t("submit.fixed")) : [
        h("div", {class: "pair"}, field(t("submit.input"), test.input), field(t("submit.expected"), test.expected)),
        h("label", {class: "check"}, test.any, t("submit.any"))]);
    return test;
  }

  function drawTests() {
    tests.forEach((test, at) => {
      test.head.textContent = [t("submit.test", {n: at + 1}), test.fixed && test.name, test.weight !== 1 && t("submit.weight", {weight: test.weight})].filter(Boolean).join(" · ");
      test.remove.setAttribute("aria-label", t("submit.removetest", {n: at + 1}));
    });
    arrange(testList, tests.map((test) => test.row));
    testList.hidden = !tests.length;
  }

  const adder = h("button", {type: "button", id: "addtest", onclick: () => {
    tests.push(makeTest());
    drawTests();
    tests.at(-1).input.focus();
  }}, icon("plus"), t("submit.addtest"));
  const zip = h("input", {type: "file", name: "zip", accept: ".zip,.tar,.tgz,.gz,.xz,.bz2", onchange: () => { archive = zip.files[0] ?? null; }});

  // ------------------------------------------------------------------- limits

  const number = (word, more = {}) => h("input", {name: word, type: "number", min: 0, step: "any", inputmode: "decimal", placeholder: t("submit.default"), ...more});
  const cpu = number("cpu");
  const wall = number("wall");
  const memory = number("memory");
  const output = number("output");
  const tolerance = number("tolerance", {placeholder: "1e-6"});
  const compare = choice([["tokens", t("submit.compare.tokens")], ["exact", t("submit.compare.exact")], ["floats", t("submit.compare.floats")]], "tokens", {name: "compare"});
  const stopFirst = h("input", {type: "checkbox", name: "stop"});
  const tags = h("input", {name: "tags", autocomplete: "off", value: draft.tags ?? ""});
  const priority = h("input", {name: "priority", type: "number", min: -100, max: 100, step: 1, placeholder: "0"});
  const user = h("input", {name: "user", autocomplete: "off", placeholder: who().user});
  const toleranceField = field(t("submit.tolerance"), tolerance);
  const follow = () => { toleranceField.hidden = compare.value !== "floats"; };
  compare.addEventListener("change", follow);
  follow();

  // ------------------------------------------------------------------ sending

  let saveDraft = () => {
    keep(DRAFT, JSON.stringify({
      text: editor.get().slice(0, MOST_TEXT_BYTES),
      name: named ? name.value : "",
      tags: tags.value,
      tests: tests.slice(0, 50).map((test) => ({name: test.name, weight: test.weight, fixed: test.fixed, input: test.input.value, expected: test.expected.value, any: test.any.checked})),
    }));
  };

  function describe() {
    const limits = {...rest?.limits};
    const put = (word, input, factor) => {
      if (input.value !== "") limits[word] = Math.round(Number(input.value) * factor);
    };
    put("cpu_ms", cpu, 1000);
    put("wall_ms", wall, 1000);
    put("memory_bytes", memory, MIB);
    put("output_bytes", output, MIB);
    const task = {
      language: language.value,
      source: [
        ...(editor.get() ? [{name: name.value.trim() || fileNameOf(language.value), text: editor.get()}] : []),
        ...along.filter((one) => one.kind === "source").map((one) => ({name: one.name, ...one.content})),
      ],
      data: along.filter((one) => one.kind === "data").map((one) => ({name: one.name, ...one.content})),
      // A pair that was left empty is no test: nobody means a program that must print nothing.
      tests: tests.filter((test) => test.fixed || test.input.value || test.expected.value || test.any.checked).map((test) => ({
        ...(test.name ? {name: test.name} : {}),
        ...(test.weight === 1 ? {} : {weight: test.weight}),
        ...(test.fixed ?? {input: test.input.value, ...(test.any.checked ? {} : {expected: test.expected.value})}),
      })),
      compare: compare.value,
      stop_on_failure: stopFirst.checked,
      tags: [...new Set(tags.value.split(",").map((tag) => tag.trim()).filter(Boolean))],
    };
    if (Object.keys(limits).length) task.execute = {limits};
    // Commands of its own belong to the language that it had.
    if (rest && rest.language === language.value) {
      if (rest.compile) task.compile = rest.compile;
      if (rest.command) task.execute = {...task.execute, command: rest.command};
    }
    if (compare.value === "floats" && tolerance.value !== "") task.tolerance = Number(tolerance.value);
    if (priority.value !== "") task.priority = Number(priority.value);
    if (has("admin") && user.value.trim()) task.user = user.value.trim();
    return task;
  }

  const button = h("button", {type: "submit", class: "primary large", id: "send"}, icon("submit"), t("submit.do"));
  const told = h("p", {class: "error", role: "alert"});

  function send() {
    told.textContent = "";
    const task = describe();
    if (!task.source.length && !files.length && !task.execute?.command) {
      told.textContent = t("submit.empty");
      editor.focus();
      return undefined;
    }
    return attempt(button, async () => {
      const form = new FormData();
      form.append("task", JSON.stringify(task));
      for (const file of files) form.append(ARCHIVE.test(file.name) ? "archive" : "source", file, file.name);
      if (archive) form.append("tests", archive, archive.name);
      let made;
      try {
        // A second try after a broken connection must not make a second task.
        made = await ask("/tasks", {method: "POST", body: form, headers: {"Idempotency-Key": key}});
      } catch (problem) {
        if (problem.status > 0 && problem.status < 500) key = newKey();
        if (!("told" in problem)) throw problem;
        told.textContent = problem.told;
        return;
      }
      saveDraft();
      go(`/tasks/${made.id}`);
    });
  }

  const form = h("form", {class: "submit", novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    send();
  }, onkeydown: (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented) {
      event.preventDefault();
      send();
    }
  }},
  h("section", {class: "card", "aria-labelledby": "submit-source"}, h("h2", {id: "submit-source"}, t("submit.source")), drop),
  h("section", {class: "card", "aria-labelledby": "submit-tests"},
    h("h2", {id: "submit-tests"}, t("submit.tests")),
    h("p", {class: "muted"}, t("submit.tests.hint")),
    testList,
    h("div", {class: "row wrap"}, adder, field(t("submit.zip"), zip, {hint: t("submit.zip.hint")}))),
  h("details", {class: "card"}, h("summary", {}, h("h2", {}, t("submit.limits"))),
    h("div", {class: "grid"},
      field(t("submit.cpu"), cpu), field(t("submit.wall"), wall), field(t("submit.memory"), memory), field(t("submit.output"), output),
      field(t("submit.compare"), compare), toleranceField,
      field(t("submit.priority"), priority), has("admin") ? field(t("submit.user"), user) : null),
    h("label", {class: "check"}, stopFirst, t("submit.stop"))),
  h("section", {class: "card sendbar"},
    field(t("submit.tags"), tags, {hint: t("submit.tags.hint"), grow: true}),
    h("div", {class: "send"}, told, h("span", {class: "muted wide-only"}, t("submit.keys")), button)));

  const clear = h("button", {type: "button", class: "quiet", onclick: () => {
    keep(DRAFT, null);
    saveDraft = () => {};
    go("/submit");
  }}, t("submit.clear"));
  root.append(h("div", {class: "row between"}, title, clear), form);

  for (const given of draft.tests ?? []) tests.push(makeTest(given));
  if (!tests.length) tests.push(makeTest());
  drawTests();
  drawFiles();

  // ------------------------------------------------------------------ loading

  async function loadLanguages(wanted) {
    const {languages} = await ask("/languages", {signal: stop.signal});
    replace(language, languages.map((one) =>
      h("option", {value: one.name}, one.versions.length ? `${one.name} – ${one.versions.join(", ")}` : one.name)));
    if (!languages.length) told.textContent = t("submit.language.none");
    const names = languages.map((one) => one.name);
    if (rest?.command && rest.language === "") {
      language.prepend(h("option", {value: ""}, t("submit.language.own", {command: rest.command.join(" ")})));
      names.push("");
    }
    const first = [wanted, kept("oj.last-language"), "cpp", "python"].find((word) => names.includes(word));
    if (first !== undefined) language.value = first;
    if (language.value) chooseLanguage();
  }

  async function loadFrom(id) {
    const task = await ask(`/tasks/${encodeURIComponent(id)}`, {signal: stop.signal});
    const given = task.task;
    /** {text} if that can be edited, else {content} for the API, without moving what is stored already. */
    const take = async (data, ...path) => {
      if (!data || data.size === 0) return {text: ""};
      const {bytes, total} = await peek(id, path, MOST_TEXT_BYTES, stop.signal);
      if (total <= MOST_TEXT_BYTES && isText(bytes)) return {text: new TextDecoder().decode(bytes), content: {base64: toBase64(bytes)}};
      return {text: null, content: data.digest ? {digest: data.digest} : {base64: toBase64(bytes)}};
    };
    rest = {
      language: task.language ?? "",
      command: given.execute.command,
      limits: Object.fromEntries(Object.entries(given.execute.limits).filter(([word]) => word === "processes" || word === "disk_bytes")),
      compile: given.compile.command || Object.keys(given.compile.limits).length
        ? {...(given.compile.command ? {command: given.compile.command} : {}), limits: given.compile.limits} : null,
    };
    await loadLanguages(rest.language);
    editor.set("");
    name.value = "";
    named = false;
    for (const [at, file] of given.source.entries()) {
      const {text, content} = await take(file, "source", file.name);
      if (at === 0 && text !== null) {
        editor.set(text);
        name.value = file.name;
        named = true;
      } else along.push({kind: "source", name: file.name, size: file.size, content: content ?? {text}});
    }
    for (const file of given.data) {
      along.push({kind: "data", name: file.name, size: file.size, content: file.digest ? {digest: file.digest} : (await take(file, "data", file.name)).content ?? {text: ""}});
    }
    tests = [];
    for (const [at, test] of given.tests.entries()) {
      const input = await take(test.input, "tests", at + 1, "input");
      const expected = await take(test.expected, "tests", at + 1, "expected");
      const {name: word, weight} = test;
      if (input.text === null || expected.text === null) {
        const fixed = {input: input.content ?? "", ...(test.expected ? {expected: expected.content ?? ""} : {})};
        tests.push(makeTest({name: word, weight, fixed}));
      } else tests.push(makeTest({name: word, weight, input: input.text, expected: expected.text, any: !test.expected}));
    }
    const {limits} = given.execute;
    const put = (input, value, factor) => { if (value) input.value = value / factor; };
    put(cpu, limits.cpu_ms, 1000);
    put(wall, limits.wall_ms, 1000);
    put(memory, limits.memory_bytes, MIB);
    put(output, limits.output_bytes, MIB);
    compare.value = given.compare;
    if (given.compare === "floats") tolerance.value = given.tolerance;
    if (task.priority) priority.value = task.priority;
    follow();
    stopFirst.checked = given.stop_on_failure;
    tags.value = task.tags.filter((tag) => !tag.startsWith("rejudge:")).join(", ");
    drawTests();
    drawFiles();
    toast(t("submit.from", {id}));
  }

  const from = query.get("from");
  attempt(null, () => (from ? loadFrom(from) : loadLanguages(query.get("language"))));
  const save = setInterval(() => saveDraft(), 3000);
  return () => {
    saveDraft();
    clearInterval(save);
    stop.abort();
    editor.close();
  };
}
