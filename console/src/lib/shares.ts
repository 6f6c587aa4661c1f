/** Quotas as bars, and usage by day. */

import type { QuotaLine, UsageReport } from "../api/types";
import { amount } from "./format";

export interface QuotaParts {
  /** In percent of the whole bar, from left to right. */
  parts: { name: "used" | "borrowed" | "reserved" | "pending"; percent: number }[];
  guaranteed: number | null;
  limit: number | null;
}

/** The parts of a bar that ends at the limit, or at what is in use and pending where that is more. */
export function quotaBar(line: Pick<QuotaLine, "used" | "reserved" | "borrowed" | "guaranteed" | "pending" | "limit">): QuotaParts {
  const used = amount(line.used);
  const reserved = amount(line.reserved);
  const pending = amount(line.pending ?? "0");
  // What is borrowed is the last of what is in use.
  const borrowed = Math.min(used, line.borrowed == null ? 0 : amount(line.borrowed));
  const guaranteed = line.guaranteed == null ? null : amount(line.guaranteed);
  const limit = line.limit === null ? null : amount(line.limit);
  const whole = Math.max(used + reserved + pending, guaranteed ?? 0, limit ?? 0);
  const percent = (value: number) => (whole > 0 ? (value / whole) * 100 : 0);
  const parts = [
    { name: "used" as const, percent: percent(used - borrowed) },
    { name: "borrowed" as const, percent: percent(borrowed) },
    { name: "reserved" as const, percent: percent(reserved) },
    { name: "pending" as const, percent: percent(pending) },
  ];
  return { parts: parts.filter((part) => part.percent > 0), guaranteed: guaranteed === null ? null : percent(guaranteed), limit: limit === null ? null : percent(limit) };
}

/** The hours of a slot on each day of a report, days without any included. */
export function byDay(report: UsageReport, slot: string): { name: string; hours: number }[] {
  const hours = new Map(report.usage.filter((line) => line.slot === slot).map((line) => [line.name, Number(line.hours)]));
  const days: { name: string; hours: number }[] = [];
  for (let at = Date.parse(`${report.since}T00:00:00Z`); at <= Date.parse(`${report.until}T00:00:00Z`); at += 86_400_000) {
    const name = new Date(at).toISOString().slice(0, 10);
    days.push({ name, hours: hours.get(name) ?? 0 });
  }
  return days;
}
