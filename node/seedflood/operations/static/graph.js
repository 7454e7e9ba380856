// The graph of all hosts: who is linked with whom, and the condition of each.

import { Edges } from "./edges.js";
import { byId, make, makeShape, makeSvg, reconcile, setAttribute, setText } from "./elements.js";
import { plural } from "./formats.js";
import { CROWD, groupHosts } from "./groups.js";
import { Layout } from "./layout.js";
import { CONDITIONS, isLive } from "./members.js";

const LABELLED_MAX = 40;
const LABEL_LENGTH_MAX = 16;
const MARGIN = { across: 56, above: 22, below: 34 };

export class Graph {
  #edges = new Edges();
  #layout = new Layout();
  #place = byId("graph");
  #lines = makeSvg("g", { class: "edges" });
  #hosts = makeSvg("g", { class: "hosts" });
  #empty = make("p", { class: "empty" }, "No other host is known yet.");
  #picture = makeSvg("svg", { role: "img" }, this.#lines, this.#hosts);
  #members = [];
  #groupOf = new Map();
  #pairs = [];
  #exchanging = new Set();

  constructor() {
    this.#place.append(this.#picture, this.#empty);
    new ResizeObserver(() => this.#draw()).observe(this.#place);
  }

  /** members: as `describeMembers` makes them; stated: pairs of origins; exchanging: those that exchange parameters. */
  show(members, stated, exchanging) {
    const pairs = this.#edges.update(members, stated, performance.now() / 1000);
    const isCrowd = members.length > CROWD;
    const shown = isCrowd ? groupHosts(members, pairs, CONDITIONS) : { members, edges: pairs, groupOf: new Map() };
    this.#members = shown.members;
    this.#groupOf = shown.groupOf;
    this.#exchanging = new Set(exchanging.map((pair) => pair.map((one) => this.#shown(one)).sort().join(" ")));
    this.#pairs = shown.edges;
    const origins = this.#members.map((member) => member.origin).sort();
    if (origins.length > 0)
      this.#layout.arrange(
        origins,
        this.#pairs.map(({ a, b }) => [a, b]),
      );
    this.#empty.hidden = members.length > 1;
    this.#draw();
    this.#tell(members);
  }

  /** The origin of a host, or its group in a crowd. */
  #shown(origin) {
    return this.#groupOf.get(origin) ?? origin;
  }

  /** Marks a host, or its group, and its links; null: none. */
  point(host) {
    const origin = this.#shown(host);
    for (const edge of this.#lines.children) {
      edge.classList.toggle("is-marked", origin !== null && edge.dataset.key.split(" ").includes(origin));
    }
    for (const host of this.#hosts.children) host.classList.toggle("is-marked", host.dataset.key === origin);
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#place;
    if (this.#members.length === 0 || width === 0) return;
    const at = this.#layout.fit(width - 2 * MARGIN.across, height - MARGIN.above - MARGIN.below);
    const place = (origin) => ({ x: at.get(origin).x + MARGIN.across, y: at.get(origin).y + MARGIN.above });
    const self = this.#members.find((member) => member.condition === "self")?.origin;
    const size = Math.max(11, 24 - this.#members.length / 8);
    setAttribute(this.#picture, "viewBox", `0 0 ${width} ${height}`);
    reconcile(this.#lines, this.#pairs, {
      key: ({ a, b }) => `${a} ${b}`,
      create: () => makeSvg("line"),
      update: (line, { a, b, isBroken }) => {
        const [from, to] = [a, b].map(place);
        const isExchanging = !isBroken && this.#exchanging.has(`${a} ${b}`);
        const kind = isBroken ? "broken" : a === self || b === self ? "own" : "live";
        setAttribute(line, "class", isExchanging ? `${kind} exchanging` : kind);
        for (const [name, value] of [
          ["x1", from.x],
          ["y1", from.y],
          ["x2", to.x],
          ["y2", to.y],
        ]) {
          setAttribute(line, name, value.toFixed(1));
        }
      },
    });
    const named = (member) => this.#label(member) !== "";
    const upwards = [...this.#members].sort((a, b) => named(a) - named(b)); // names lie above whatever is beside them
    reconcile(this.#hosts, upwards, {
      key: (member) => member.origin,
      create: (member) => this.#makeHost(member.origin),
      update: (host, member) => {
        const { x, y } = place(member.origin);
        const [title, shape, label] = host.children;
        setAttribute(
          host,
          "class",
          `host ${member.condition}${host.classList.contains("is-marked") ? " is-marked" : ""}`,
        );
        setAttribute(host, "transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
        setText(title, `${member.name}: ${CONDITIONS[member.condition].word}`);
        setAttribute(shape, "href", `#shape-${CONDITIONS[member.condition].shape}`);
        const width = size * Math.min(1.6, (member.count ?? 1) ** 0.15);
        for (const name of ["x", "y"]) setAttribute(shape, name, -width / 2);
        for (const name of ["width", "height"]) setAttribute(shape, name, width);
        setAttribute(label, "y", width / 2 + 14);
        setText(label, this.#label(member));
      },
    });
  }

  #makeHost(origin) {
    const host = makeSvg("g", {}, makeSvg("title"), makeSvg("use"), makeSvg("text", { "text-anchor": "middle" }));
    host.addEventListener("pointerenter", () => this.point(origin));
    host.addEventListener("pointerleave", () => this.point(null));
    return host;
  }

  /** In a crowd only this node and those in trouble have their names beside them. */
  #label(member) {
    const isNamed = this.#members.length <= LABELLED_MAX || member.condition === "self" || !isLive(member.condition);
    if (!isNamed) return "";
    return member.name.length > LABEL_LENGTH_MAX ? `${member.name.slice(0, LABEL_LENGTH_MAX - 1)}…` : member.name;
  }

  /** members: all hosts, also where groups are drawn. */
  #tell(members) {
    const tally = Object.keys(CONDITIONS).map((condition) => ({
      condition,
      number: members.filter((member) => member.condition === condition).length,
    }));
    const present = tally.filter(({ number }) => number > 0);
    const tell = ({ condition, number }) =>
      condition === "self" ? CONDITIONS.self.word : `${number} ${CONDITIONS[condition].word}`;
    setAttribute(
      this.#picture,
      "aria-label",
      `${plural(members.length, "host")}: ${present.map(tell).join(", ")}.`,
    );
    reconcile(byId("legend"), present, {
      key: ({ condition }) => condition,
      create: ({ condition }) =>
        make(
          "li",
          { class: condition, title: CONDITIONS[condition].text },
          makeShape(CONDITIONS[condition].shape),
          make("span"),
        ),
      update: (item, one) => setText(item.lastElementChild, tell(one)),
    });
  }
}
