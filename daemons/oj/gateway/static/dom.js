// Elements without markup: whatever comes from outside becomes a text node, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") {
      element[name] = value;
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** h("p", {class: "x", onclick: f}, "text", node, …) */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Puts `wanted` (nodes) into the parent in this order, moving only what has to move. */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.childNodes]) if (!keep.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of wanted) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

let numbers = 0;
export function newId(word = "id") {
  numbers += 1;
  return `${word}-${numbers}`;
}

/** A label above its field. */
export function field(label, input, {hint, grow} = {}) {
  input.id ||= newId("field");
  const told = hint ? h("small", {class: "hint", id: newId("hint")}, hint) : null;
  if (told) input.setAttribute("aria-describedby", told.id);
  return h("div", {class: grow ? "field grow" : "field"}, h("label", {for: input.id}, label), input, told);
}

export function choice(options, value, properties) {
  return h("select", properties, options.map(([word, text]) =>
    h("option", {value: word, selected: word === value}, text)));
}
