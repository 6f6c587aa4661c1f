/** Quotas and their use, and the fair-share standing in each pool. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { PoolList, QuotaLine, QuotaView, ShareList } from "../api/types";
import { Bar, Empty, Loading, Panel, Problem } from "../components/basics";
import { amount, percent, readable } from "../lib/format";

export function Sharing() {
  return (
    <div className="page">
      <header className="title">
        <h1>Sharing</h1>
      </header>
      <Quotas />
      <Shares />
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
