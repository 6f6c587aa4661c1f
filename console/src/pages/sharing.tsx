/** Quotas and their use, and the fair-share standing in each pool. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { PoolList, QuotaLine, QuotaView, ShareList, UsageReport } from "../api/types";
import { Bar, Empty, Loading, Panel, Problem } from "../components/basics";
import { csv } from "../lib/csv";
import { amount, percent, readable } from "../lib/format";

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
  return (
    <>
      {scopes.map((scope) => {
        const lines = data.quotas.filter((line) => line.scope === scope && (line.limit !== null || amount(line.used) + amount(line.reserved) > 0));
        return lines.length ? <Scope key={scope} scope={scope} lines={lines} /> : null;
      })}
      {data.guarantees.length > 0 && (
        <Panel title="Guarantees of pools">
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
        </Panel>
      )}
    </>
  );
}

function Scope({ scope, lines }: { scope: string; lines: QuotaLine[] }) {
  return (
    <Panel title={`Quotas of the ${scope}`}>
      <div className="table-wrap">
        <table>
          <thead>
            <tr>
              <th>{scope}</th>
              <th>Slot</th>
              <th>Use</th>
              <th className="number">Used</th>
              <th className="number">Reserved</th>
              <th className="number">Borrowed</th>
              <th className="number">Limit</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line) => {
              const limit = line.limit === null ? 0 : amount(line.limit);
              return (
                <tr key={`${line.tenant} ${line.slot}`}>
                  <td>{line.name}</td>
                  <td>{line.slot}</td>
                  <td>
                    {line.limit === null ? (
                      <span className="faint">no limit</span>
                    ) : (
                      <Bar
                        label={line.slot}
                        parts={[
                          { name: "used", value: percent(amount(line.used), limit), tone: "used" },
                          { name: "reserved", value: percent(amount(line.reserved), limit), tone: "reserved" },
                        ]}
                      />
                    )}
                  </td>
                  <td className="number">{readable(line.used)}</td>
                  <td className="number">{readable(line.reserved)}</td>
                  <td className="number">{line.borrowed == null ? "–" : readable(line.borrowed)}</td>
                  <td className="number">{line.limit === null ? "–" : readable(line.limit)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
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
        <div className="table-wrap">
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
