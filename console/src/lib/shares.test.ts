import { describe, expect, it } from "vitest";
import type { UsageReport } from "../api/types";
import { byDay, quotaBar } from "./shares";

const LINE = { used: "6", reserved: "1", borrowed: "2", guaranteed: "4", pending: "1", limit: "16" };

describe("quotaBar", () => {
  it("shows used, borrowed, reserved and pending on the scale of the limit", () => {
    const { parts, guaranteed, limit } = quotaBar(LINE);
    expect(parts).toEqual([
      { name: "used", percent: 25 },
      { name: "borrowed", percent: 12.5 },
      { name: "reserved", percent: 6.25 },
      { name: "pending", percent: 6.25 },
    ]);
    expect([guaranteed, limit]).toEqual([25, 100]);
  });

  it("marks the limit inside the bar where more is pending than fits", () => {
    expect(quotaBar({ ...LINE, pending: "25" })).toMatchObject({ limit: 50, guaranteed: 12.5 });
  });

  it("fills the bar where nothing is limited", () => {
    const { parts, guaranteed, limit } = quotaBar({ used: "3", reserved: "0", borrowed: null, guaranteed: null, pending: "1", limit: null });
    expect(parts.map(({ percent }) => percent)).toEqual([75, 25]);
    expect([guaranteed, limit]).toEqual([null, null]);
  });
});

describe("byDay", () => {
  it("has every day of the period", () => {
    const report = { since: "2026-02-27", until: "2026-03-01", usage: [{ name: "2026-02-28", slot: "cpu", hours: "2.5" }, { name: "2026-03-01", slot: "gpu", hours: "9" }] } as unknown as UsageReport;
    expect(byDay(report, "cpu")).toEqual([
      { name: "2026-02-27", hours: 0 },
      { name: "2026-02-28", hours: 2.5 },
      { name: "2026-03-01", hours: 0 },
    ]);
  });
});
