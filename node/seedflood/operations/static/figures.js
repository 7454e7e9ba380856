// Figures of evaluations: how each is written, by its name. One that is not known here is a plain number.

import { capitalised, figure, percent } from "./formats.js";

const KNOWN = {
  accuracy: { write: percent, writeAxis: percent, floor: 0, ceiling: 1 },
  perplexity: { floor: 1 },
};

/** figures: {name: [[step, value]]}, as the status has them. The first of what comes back tells most. */
export function describeFigures(figures) {
  return Object.entries(figures).map(([name, points]) => ({
    name,
    points,
    title: capitalised(name.replaceAll("_", " ")),
    write: figure,
    writeAxis: figure,
    floor: null,
    ceiling: null,
    ...KNOWN[name],
  }));
}
