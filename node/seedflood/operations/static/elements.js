// Elements of the page. Data from the network is only ever set as text, never as markup. Elements that have not changed
// are not touched, so selections, focus and scroll positions survive a poll.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

export function makeSvg(tag, ...children) {
  const element = document.createElementNS(SVG, tag);
  element.append(...children);
  return element;
}

/**
 * Makes the children of `parent` be one per item, in order; those that are there already are kept.
 * key: what tells items apart; create: an element for a new item; update: shows the item in its element.
 */
export function reconcile(parent, items, { key = (_, index) => index, create, update }) {
  const old = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = String(key(item, index));
    const child = old.get(name) ?? create(item);
    if (!old.delete(name)) child.dataset.key = name;
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, item);
  });
  for (const child of old.values()) child.remove();
}

/** Sentences as a list. */
export function showSentences(id, sentences) {
  reconcile(byId(id), sentences, { create: () => make("li"), update: setText });
}

/** Values below their words, in a <dl>: rows of [word, value, note]. */
export function showFacts(id, rows) {
  reconcile(byId(id), rows, {
    create: () => make("div", {}, make("dt"), make("dd"), make("dd", { class: "hint" })),
    update: (element, row) => {
      row.forEach((text, k) => setText(element.children[k], text));
    },
  });
}

/**
 * rows: of any kind; key: what tells them apart; look: the class of a row; title: more of it.
 * columns: { word, tell, look }; tell: the text of a row's cell; look: the class of the column. The first is the name.
 */
export function showTable(id, columns, rows, { key, look, title }) {
  const { tHead, tBodies } = byId(id);
  reconcile(tHead.rows[0], columns, {
    key: ({ word }) => word,
    create: ({ word, look: of = "" }) => make("th", { scope: "col", class: of }, word),
    update: () => {},
  });
  reconcile(tBodies[0], rows, {
    key,
    create: () => make("tr"),
    update: (line, row) => {
      setAttributes(line, { class: look(row), title: title(row) });
      reconcile(line, columns, {
        key: ({ word }) => word,
        create: (column) => make(column === columns[0] ? "th" : "td", { class: column.look ?? "" }),
        update: (cell, { tell }) => setText(cell, tell(row)),
      });
    },
  });
}
