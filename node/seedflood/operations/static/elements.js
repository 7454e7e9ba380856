// Elements of the page. Data from the network is only ever set as text, never as markup. Elements that have not changed
// are not touched, so selections, focus and scroll positions survive a poll.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** One of the shapes at the top of the page; the words beside it say the same. */
export function makeShape(name) {
  return makeSvg("svg", { class: "shape", "aria-hidden": "true" }, makeSvg("use", { href: `#shape-${name}` }));
}

/**
 * Makes the children of `parent` be one per item, in order; those that are there already are kept.
 * key: what tells items apart; create: an element for a new item; update: shows the item in its element.
 */
export function reconcile(parent, items, { key, create, update }) {
  const old = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = String(key(item));
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, item);
  });
  for (const child of old.values()) child.remove();
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
