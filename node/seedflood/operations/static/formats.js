// How values are written. An unknown value is a dash, never a zero.

export const UNKNOWN = "–";

/** A node that waits for a shorter time than this counts as working. */
export const STANDSTILL_SECONDS = 3;

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const calendar = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" });

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isKnown(value) ? grouped.format(value) : UNKNOWN;
}

export function decimal(value, digits) {
  return isKnown(value) ? value.toFixed(digits) : UNKNOWN;
}

/** Three significant digits, as far as a few decimals allow; a perplexity may have 305 of them. more: further digits. */
export function figure(value, more = 0) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 0.001)) return value.toExponential(1 + more).replace("e+", "e");
  if (size >= 100 && more === 0) return grouped.format(value);
  return value.toFixed(more + (size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3));
}

/** A loss in four decimals, unless it has grown out of all bounds. */
export function loss(value) {
  return Math.abs(value) < 1000 ? decimal(value, 4) : figure(value);
}

const MORE_DIGITS_MAX = 3;

/** The labels of an axis, in as many digits as tell them apart. write: (value, how many digits more than usual). */
export function labels(values, write) {
  for (let more = 0; more < MORE_DIGITS_MAX; more += 1) {
    const made = values.map((value) => write(value, more));
    if (new Set(made).size === made.length) return made;
  }
  return values.map((value) => write(value, MORE_DIGITS_MAX));
}

export function percent(share, digits = 1) {
  return isKnown(share) ? `${(100 * share).toFixed(digits)} %` : UNKNOWN;
}

/** Decimal units, as network people count: 1 kB is 1,000 bytes. */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  let scaled = value;
  let unit = 0;
  while (scaled >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${units[unit]}`;
}

/** The two largest units that matter. */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 0.9995) return `${(1000 * seconds).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  const hours = Math.round(seconds / 3600);
  return `${grouped.format(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** For what is counted in whole seconds. */
export function age(seconds) {
  return seconds < 10 ? `${Math.floor(seconds)} s` : duration(seconds);
}

export function timeOfDay(date) {
  return clock.format(date);
}

export function dateAndTime(date) {
  return calendar.format(date);
}

export function names(list, most = 4) {
  const shown = list.slice(0, most).join(", ");
  return list.length > most ? `${shown} and ${list.length - most} more` : shown;
}

export function capitalised(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** "1 host", "2 hosts". */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
