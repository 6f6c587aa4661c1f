/** Quotas and their use, and the fair-share standing in each pool. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { PoolList, QuotaLine, QuotaView, ShareList, UsageReport } from "../api/types";
import { Ago, Bar, Empty, Key, Loading, Panel, Problem } from "../components/basics";
import { csv } from "../lib/csv";
import { amount, percent, readable } from "../lib/format";
import { byDay, quotaBar } from "../lib/shares";

export function Sharing() {
  return (
    <div className="page">
      <header className="title">
        <h1>Sharing</h1>
      </header>
      <Quotas />
      <Shares />
      <UsageOverTime />
    </div>
  );
}

function Quotas() {
  const { data, error, refetch } = useQuery({
    queryKey: ["tenant", "quotas"],
    queryFn: ({ signal }) => get<QuotaView>("/api/quotas", undefined, signal),
  });
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (!data) return <Loading />;
  const scopes = ["domain", "project", "user", "keypair"] as const;
  // A keypair without limits of its own only repeats its user.
  const limited = (scope: string) => scope !== "keypair" || data.quotas.some((line) => line.scope === scope && line.limit !== null);
  const shown = scopes.filter(limited).map((scope) => ({ scope, lines: data.quotas.filter((line) => line.scope === scope && isShown(line)) }));
  const any = shown.some(({ lines }) => lines.length > 0);
  return (
    <>
      {any ? <QuotaLegend /> : <Empty title="Nothing is limited, and nothing is in use. Submit something:" command="mooring run -- echo hello" />}
      {shown.map(({ scope, lines }) => lines.length > 0 && <Scope key={scope} scope={scope} lines={lines} />)}
      {data.guarantees.length > 0 && (
        <Panel title="Guarantees of pools">
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Guarantees of pools">
          <table>
            <thead>
              <tr>
                <th>Pool</th>
                <th>Slot</th>
                <th className="number">Guaranteed</th>
                <th className="number">In use</th>
                <th className="number">Borrowed</th>
              </tr>
            </thead>
            <tbody>
              {data.guarantees.map((line) => (
                <tr key={`${line.pool} ${line.slot}`}>
                  <td>{line.pool}</td>
                  <td>{line.slot}</td>
                  <td className="number">{readable(line.guaranteed)}</td>
                  <td className="number">{readable(line.in_use)}</td>
                  <td className="number">{readable(line.borrowed)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          </div>
        </Panel>
      )}
    </>
  );
}

function isShown(line: QuotaLine): boolean {
  return line.limit !== null || line.guaranteed != null || [line.used, line.reserved, line.pending ?? "0"].some((value) => amount(value) > 0);
}

function QuotaLegend() {
  return (
    <p className="legend quota-legend">
      <Key of="used" /> <Key of="borrowed" /> <Key of="reserved" /> <Key of="pending" /> <Key of="mark guaranteed" as="guaranteed" /> <Key of="mark limit" as="limit" />
    </p>
  );
}

function Scope({ scope, lines }: { scope: string; lines: QuotaLine[] }) {
  const names = new Set(lines.map((line) => line.name));
  const title = `${scope.charAt(0).toUpperCase()}${scope.slice(1)}${names.size === 1 ? ` ${lines[0]?.name}` : "s"}`;
  return (
    <Panel title={title}>
      <div className="table-wrap" tabIndex={0} role="region" aria-label={title}>
        <table className="quotas">
          <thead>
            <tr>
              <th>Slot</th>
              <th className="wide">Use</th>
              <th className="number">Used</th>
              <th className="number">Reserved</th>
              <th className="number">Pending</th>
              <th className="number">Guaranteed</th>
              <th className="number">Borrowed</th>
              <th className="number">Limit</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line) => (
              <tr key={`${line.tenant} ${line.slot}`}>
                <td>
                  {names.size > 1 && `${line.name} `}
                  {line.slot}
                </td>
                <td className="wide">
                  <QuotaBar line={line} />
                </td>
                <td className="number">{readable(line.used)}</td>
                <td className="number">{readable(line.reserved)}</td>
                <td className="number">{readable(line.pending ?? "0")}</td>
                <td className="number">{line.guaranteed == null ? "–" : readable(line.guaranteed)}</td>
                <td className="number">{line.borrowed == null ? "–" : readable(line.borrowed)}</td>
                <td className="number">
                  {line.limit === null ? <span className="faint">none</span> : readable(line.limit)}
                  {line.until && (
                    <span className="faint">
                      {" "}
                      until <Ago at={line.until} />
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

/** What is used, borrowed, reserved and pending, on a scale up to the limit or beyond it. */
function QuotaBar({ line }: { line: QuotaLine }) {
  const { parts, guaranteed, limit } = quotaBar(line);
  const text = [...parts.map(({ name, percent }) => `${name} ${percent.toFixed(0)} %`), limit === null ? "no limit" : `limit at ${limit.toFixed(0)} %`].join(", ");
  return (
    <span className="quota-bar" role="img" aria-label={`${line.slot}: ${text}`} title={text}>
      <span className="track">
        {parts.map(({ name, percent }) => (
          <span key={name} className={`fill ${name}`} style={{ width: `${percent}%` }} />
        ))}
      </span>
      {guaranteed !== null && <i className="mark guaranteed" style={{ left: `${guaranteed}%` }} />}
      {limit !== null && <i className="mark limit" style={{ left: `${limit}%` }} />}
    </span>
  );
}

const GROUPS = ["day", "project", "user", "pool", "domain"] as const;
const PERIODS = [7, 30, 90] as const;

function UsageOverTime() {
  const [by, setBy] = useState<(typeof GROUPS)[number]>("day");
  const [days, setDays] = useState<number>(30);
  const since = new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);
  const { data, error } = useQuery({
    queryKey: ["tenant", "usage", by, since],
    queryFn: ({ signal }) => get<UsageReport>("/api/usage", { by, since }, signal),
  });
  const most = new Map<string, number>();
  for (const line of data?.usage ?? []) most.set(line.slot, Math.max(most.get(line.slot) ?? 0, Number(line.hours)));

  function download() {
    const rows = (data?.usage ?? []).map((line) => [line.name, line.slot, line.hours, line.unit, line.measured_hours ?? ""]);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv([[by, "slot", "hours", "unit", "measured_hours"], ...rows])], { type: "text/csv" }));
    link.download = `usage-by-${by}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  return (
    <Panel
      title="Usage"
      aside={
        <div className="filters">
          <select aria-label="Usage by" value={by} onChange={(event) => setBy(event.target.value as typeof by)}>
            {GROUPS.map((each) => (
              <option key={each} value={each}>
                by {each}
              </option>
            ))}
          </select>
          <select aria-label="Period" value={days} onChange={(event) => setDays(Number(event.target.value))}>
            {PERIODS.map((each) => (
              <option key={each} value={each}>
                {each} days
              </option>
            ))}
          </select>
          <button type="button" onClick={download} disabled={!data?.usage.length}>
            CSV
          </button>
        </div>
      }
    >
      {error && <Problem error={error} />}
      {data && data.usage.length === 0 && <Empty title="Nothing was used in this period." command="mooring run -- echo hello" />}
      {data && by === "day" && data.usage.length > 0 && <Days report={data} />}
      {data && data.usage.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Usage">
          <table>
            <thead>
              <tr>
                <th>{by}</th>
                <th>Slot</th>
                <th>Slot hours</th>
                <th className="number">Allocated</th>
                <th className="number">Measured</th>
              </tr>
            </thead>
            <tbody>
              {data.usage.map((line) => (
                <tr key={`${line.name} ${line.slot}`}>
                  <td>{line.name}</td>
                  <td>{line.slot}</td>
                  <td>
                    <Bar label={line.slot} parts={[{ name: "hours", value: percent(Number(line.hours), most.get(line.slot) ?? 0), tone: "used" }]} />
                  </td>
                  <td className="number">
                    {line.hours} {line.unit === "1" ? "h" : `${line.unit} h`}
                  </td>
                  <td className="number">{line.measured_hours ?? "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** The slot hours of one slot by day, as columns; days without any are empty. */
function Days({ report }: { report: UsageReport }) {
  const slots = [...new Set(report.usage.map((line) => line.slot))];
  const [chosen, setChosen] = useState("cpu");
  const slot = slots.includes(chosen) ? chosen : (slots[0] as string);
  const days = byDay(report, slot);
  const most = Math.max(...days.map((day) => day.hours));
  const unit = report.usage.find((line) => line.slot === slot)?.unit;
  return (
    <figure className="chart days">
      <figcaption>
        <select aria-label="Slot" value={slot} onChange={(event) => setChosen(event.target.value)}>
          {slots.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
        <span className="faint">
          at most {most.toFixed(1)} {unit === "1" ? "" : `${unit} `}hours in a day
        </span>
      </figcaption>
      <div className="columns" role="img" aria-label={`${slot} hours by day, from ${report.since} to ${report.until}`}>
        {days.map((day) => (
          <span key={day.name} title={`${day.name}: ${day.hours.toFixed(1)} hours`}>
            <i style={{ height: `${percent(day.hours, most)}%` }} />
          </span>
        ))}
      </div>
      <div className="faint span-of">
        <span>{report.since}</span>
        <span>{report.until}, in UTC</span>
      </div>
    </figure>
  );
}

function Shares() {
  const pools = useQuery({ queryKey: ["pool", "list"], queryFn: ({ signal }) => get<PoolList>("/api/pools", undefined, signal) });
  const [chosen, setChosen] = useState<string | null>(null);
  const pool = chosen ?? pools.data?.pools[0]?.name;
  const { data, error } = useQuery({
    queryKey: ["pool", "shares", pool],
    queryFn: ({ signal }) => get<ShareList>("/api/shares", { pool }, signal),
    enabled: pool !== undefined,
  });
  if (pools.error || error) return <Problem error={pools.error ?? error} />;
  if (!pool) return <Empty title="There is no pool that you may use." command="mooring pools" />;
  return (
    <Panel
      title="Fair share"
      aside={
        <select aria-label="Pool" value={pool} onChange={(event) => setChosen(event.target.value)}>
          {pools.data?.pools.map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
      }
    >
      {data && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Fair share">
          <table>
            <thead>
              <tr>
                <th className="number">Rank</th>
                <th>Tenant</th>
                <th>Scope</th>
                <th className="number">Weight</th>
                <th>Holds now</th>
                <th>Used recently</th>
                <th className="number">Factor</th>
              </tr>
            </thead>
            <tbody>
              {data.shares.map((share) => (
                <tr key={`${share.scope} ${share.id}`}>
                  <td className="number">{share.rank}</td>
                  <td>{share.name}</td>
                  <td>{share.scope}</td>
                  <td className="number">{share.weight}</td>
                  <td>
                    <Bar label="holds" parts={[{ name: "holds", value: share.held_percent, tone: "used" }]} /> {share.held_percent.toFixed(1)} %
                  </td>
                  <td>
                    <Bar label="used" parts={[{ name: "used", value: share.used_percent, tone: "reserved" }]} /> {share.used_percent.toFixed(1)} %
                  </td>
                  <td className="number">{share.factor.toFixed(3)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
