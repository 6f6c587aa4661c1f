/** Times, durations and numbers as people read them. */

const STEPS: readonly [number, Intl.RelativeTimeFormatUnit][] = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [7, "day"],
  [52, "week"],
  [Number.POSITIVE_INFINITY, "year"],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });

/** `12s ago`, `in 3m`: the time of an instant from now, in one unit. */
export function fromNow(at: string | Date, now: number = Date.now()): string {
  let amount = (new Date(at).getTime() - now) / 1000;
  if (Math.abs(amount) < 1) return "now";
  for (const [size, unit] of STEPS) {
    if (Math.abs(amount) < size) return relative.format(Math.trunc(amount), unit);
    amount /= size;
  }
  return absolute(at);
}

/** The instant in the viewer's zone, with its name. */
export function absolute(at: string | Date): string {
  return new Date(at).toLocaleString("en-GB", {
    year: "numeric",
    month: "short",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
}

export function clockTime(at: string | Date): string {
  return new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** `2h 5m`, `41s`: a length of time in its two largest units. */
export function duration(seconds: number): string {
  const units: [string, number][] = [
    ["d", 86_400],
    ["h", 3_600],
    ["m", 60],
    ["s", 1],
  ];
  let rest = Math.max(0, Math.round(seconds));
  const parts: string[] = [];
  for (const [name, size] of units) {
    const count = Math.floor(rest / size);
    if (count > 0) parts.push(`${count}${name}`);
    rest -= count * size;
  }
  return parts.slice(0, 2).join(" ") || "0s";
}

const SUFFIXES: Record<string, number> = {
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
};

/** The number of a quantity as the API writes it (`1.5`, `64Gi`), for bars and ratios only. */
export function amount(quantity: string): number {
  const found = /^(-?[\d.]+)([A-Za-z]*)$/.exec(quantity);
  return found ? Number(found[1]) * (SUFFIXES[found[2] ?? ""] ?? 1) : 0;
}

/** A quantity in the largest binary unit that keeps it readable: `23635524Ki` is `22.5Gi`. */
export function readable(quantity: string): string {
  if (!/(Ki|Mi|Gi|Ti)$/.test(quantity)) return quantity;
  const units = ["Pi", "Ti", "Gi", "Mi", "Ki"] as const;
  const value = amount(quantity);
  for (const unit of units) {
    const size = value / (SUFFIXES[unit] as number);
    if (size >= 1) return `${Number(size.toFixed(1))}${unit}`;
  }
  return quantity;
}

export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function percent(part: number, whole: number): number {
  return whole > 0 ? Math.min(100, Math.max(0, (part / whole) * 100)) : 0;
}

const collator = new Intl.Collator("en", { numeric: true });

/** The order of names as people count: `n2` before `n10`. One collator for all, since each is slow to make. */
export function byName(a: { name: string }, b: { name: string }): number {
  return collator.compare(a.name, b.name);
}
