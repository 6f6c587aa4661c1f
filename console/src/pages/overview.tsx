/** The state of the cluster at a glance: capacity by pool, the queue, planned starts, nodes, servers, failures. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "../api/client";
import type { CapacityList, LoopList, Ready, ServerList, UsageReport, Workload, WorkloadList } from "../api/types";
import { Ago, Bar, Empty, Loading, Panel, Problem, Status } from "../components/basics";
import { useMe } from "../components/layout";
import { nodeStates, type PoolUse, utilisation } from "../lib/capacity";
import { count, percent } from "../lib/format";
import { sentence } from "../lib/sentence";

/** The health of servers and loops has no events. */
const HEALTH_MILLISECONDS = 120_000;

function useWorkloads(name: string, query: Record<string, string | number | boolean | readonly string[]>) {
  return useQuery({
    queryKey: ["workload", "overview", name, query],
    queryFn: ({ signal }) => get<WorkloadList>("/api/workloads", { ...query, positions: "false" }, signal),
  });
}

export function Overview() {
  const { data: me } = useMe();
  if (!me) return <Loading />;
  const everyone = me.role !== "user";
  return (
    <div className="page">
      <header className="title">
        <h1>Overview</h1>
      </header>
      <div className="halves">
        <div>
          <Utilisation />
          <Queue everyone={everyone} />
          <Failures everyone={everyone} />
        </div>
        <div>
          <Health />
          <NodeStates />
          <Planned everyone={everyone} />
          <Running everyone={everyone} />
        </div>
      </div>
    </div>
  );
}

function useCapacity() {
  return useQuery({
    queryKey: ["node", "capacity"],
    queryFn: ({ signal }) => get<CapacityList>("/api/capacity", undefined, signal),
  });
}

/** What is allocated now, and the mean over a day and a week by the slot hours of the accounting. */
function Utilisation() {
  const { data, error } = useCapacity();
  const uses = data ? utilisation(data) : [];
  const past = usePast(uses);
  return (
    <Panel title="Utilisation" aside={<span className="faint">allocated, of the capacity of all nodes</span>}>
      {error && <Problem error={error} />}
      {past.error && <Problem error={past.error} />}
      {!data && !error && <Loading />}
      {data && uses.length === 0 && <Empty title="No node offers capacity yet." command="mooring token create --name NODE" />}
      {uses.length > 0 && (
        <table className="utilisation">
          <thead>
            <tr>
              <th>Pool</th>
              <th>Slot</th>
              <th className="wide">Now</th>
              <th className="number">
                <span className="hidden">Allocated now</span>
              </th>
              <th className="number" title="The mean since yesterday at 00:00 UTC">
                Day
              </th>
              <th className="number" title="The mean of the last seven days in UTC, today included">
                Week
              </th>
            </tr>
          </thead>
          <tbody>
            {uses.map((use, index) => (
              <tr key={`${use.pool} ${use.slot}`} className={uses[index - 1]?.pool === use.pool ? undefined : "first"}>
                <td className="pool">{uses[index - 1]?.pool === use.pool ? <span className="hidden">{use.pool}</span> : use.pool}</td>
                <td>
                  {uses[index - 1]?.pool !== use.pool && <span className="of-pool">{use.pool}</span>}
                  {use.slot}
                </td>
                <td className="wide">
                  <Bar
                    label={`${use.slot} of ${use.pool}`}
                    parts={[
                      { name: "used", value: use.used, tone: "used" },
                      { name: "held and reserved", value: use.pledged, tone: "reserved" },
                    ]}
                  />
                </td>
                <td className="number">{(use.used + use.pledged).toFixed(0)} %</td>
                <td className="number">{past.day(use.pool, use.slot)}</td>
                <td className="number">{past.week(use.pool, use.slot)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function usePast(uses: readonly PoolUse[]) {
  const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);
  const usage = (since: string) => ({
    queryKey: ["tenant", "past", since],
    queryFn: ({ signal }: { signal: AbortSignal }) => get<UsageReport>("/api/usage", { by: "pool", since }, signal),
  });
  const [yesterday, week] = useQueries({ queries: [usage(day(1)), usage(day(6))] });
  const midnight = Date.parse(`${day(0)}T00:00:00Z`);
  const hours = (days: number) => (Date.now() - midnight) / 3_600_000 + days * 24;
  const whole = new Map(uses.map((use) => [`${use.pool} ${use.slot}`, use.offered]));
  const share = (report: UsageReport | undefined, period: number) => (pool: string, slot: string) => {
    if (!report) return "–";
    const line = report.usage.find((each) => each.name === pool && each.slot === slot);
    const offered = (whole.get(`${pool} ${slot}`) ?? 0) / (line?.unit === "Gi" ? 2 ** 30 : 1);
    return `${(line ? percent(Number(line.hours), offered * period) : 0).toFixed(0)} %`;
  };
  return { day: share(yesterday?.data, hours(1)), week: share(week?.data, hours(6)), error: yesterday?.error ?? week?.error };
}

function Queue({ everyone }: { everyone: boolean }) {
  const { data, error } = useWorkloads("queue", { status: ["PENDING"], everyone, limit: 6, sort: "created_at" });
  const oldest = data?.workloads[0];
  return (
    <Panel
      title="Queue"
      aside={
        <Link to="/workloads" search={{ status: ["PENDING"], ...(everyone && { everyone: true }) }}>
          {data ? `${data.total} pending` : ""}
        </Link>
      }
    >
      {error && <Problem error={error} />}
      {!data && !error && <Loading />}
      {data && !oldest && <Empty title="Nothing waits." command="mooring run -- echo hello" />}
      {oldest && (
        <p className="faint">
          The oldest was submitted <Ago at={oldest.created_at} />.
        </p>
      )}
      <Rows workloads={data?.workloads ?? []} />
    </Panel>
  );
}

function Planned({ everyone }: { everyone: boolean }) {
  const { data, error } = useWorkloads("planned", { starting: true, everyone, limit: 6, sort: "start" });
  const rows = (data?.workloads ?? []).flatMap((workload) => {
    const at = workload.start?.planned_at ?? workload.start?.estimated_at;
    return at ? [{ workload, at }] : [];
  });
  return (
    <Panel title="Next starts" aside={<Link to="/timeline">Timeline</Link>}>
      {error && <Problem error={error} />}
      {data && rows.length === 0 && <Empty title="No start is planned. Bookings and pending work with time limits are:" command="mooring book --start +2h --for 1h --cpu 2" />}
      <ul className="rows">
        {rows.map(({ workload, at }) => (
          <li key={workload.id}>
            <Ago at={at} />
            <Link to="/workloads/$ref" params={{ ref: workload.id }}>
              {workload.name}
            </Link>
            <span className="faint">{workload.start?.planned_at ? "planned" : "estimated"}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Failures({ everyone }: { everyone: boolean }) {
  const { data, error } = useWorkloads("failures", { status: ["FAILED"], everyone, all: true, limit: 6 });
  return (
    <Panel title="Recent failures">
      {error && <Problem error={error} />}
      {!data && !error && <Loading />}
      {data && data.total === 0 && <Empty title="Nothing has failed." />}
      <Rows workloads={data?.workloads ?? []} />
    </Panel>
  );
}

function Running({ everyone }: { everyone: boolean }) {
  const { data, error } = useWorkloads("running", { status: ["RUNNING"], everyone, limit: 6 });
  return (
    <Panel title="Running" aside={data ? <span className="faint">{count(data.total, "workload")}</span> : null}>
      {error && <Problem error={error} />}
      {!data && !error && <Loading />}
      {data && data.total === 0 && <Empty title="Nothing runs." command="mooring run -- echo hello" />}
      <Rows workloads={data?.workloads ?? []} />
    </Panel>
  );
}

function Rows({ workloads }: { workloads: Workload[] }) {
  return (
    <ul className="rows">
      {workloads.map((workload) => (
        <li key={workload.id}>
          <Status value={workload.status} />
          <Link to="/workloads/$ref" params={{ ref: workload.id }}>
            {workload.name}
          </Link>
          <span className="faint clip" title={sentence(workload)}>
            {sentence(workload)}
          </span>
        </li>
      ))}
    </ul>
  );
}

function NodeStates() {
  const { data } = useCapacity();
  const states = data ? nodeStates(data) : [];
  const nodes = states.reduce((sum, [, number]) => sum + number, 0);
  return (
    <Panel title="Nodes" aside={<Link to="/nodes">{data ? count(nodes, "node") : ""}</Link>}>
      <ul className="tally">
        {states.map(([state, number]) => (
          <li key={state}>
            <strong>{number}</strong>
            <Status value={state} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Health() {
  const { data: me } = useMe();
  const admin = me?.role === "admin";
  const ready = useQuery({
    queryKey: ["ready"],
    queryFn: async () => (await fetch("/ready", { cache: "no-store" })).json() as Promise<Ready>,
    refetchInterval: HEALTH_MILLISECONDS,
  });
  const servers = useQuery({ queryKey: ["servers"], queryFn: ({ signal }) => get<ServerList>("/api/servers", undefined, signal), enabled: admin, refetchInterval: HEALTH_MILLISECONDS });
  const loops = useQuery({ queryKey: ["loops"], queryFn: ({ signal }) => get<LoopList>("/api/loops", undefined, signal), enabled: admin, refetchInterval: HEALTH_MILLISECONDS });
  const failing = loops.data?.loops.filter((loop) => loop.outcome === "failed") ?? [];
  const problems = Object.entries({ ...ready.data?.checks, ...ready.data?.degraded }).filter(([, state]) => state !== "ok");
  return (
    <Panel title="Health" aside={ready.data && <Status value={ready.data.ready ? "READY" : "DOWN"} />}>
      <ul className="rows">
        {servers.data?.servers.map((server) => (
          <li key={server.name}>
            <Status value={server.standing === "silent" ? "LOST" : "READY"} />
            <span>{server.name}</span>
            <span className="faint">
              {server.standing}, seen <Ago at={server.last_seen_at} />
            </span>
          </li>
        ))}
        {problems.map(([part, state]) => (
          <li key={part}>
            <Status value="DOWN" />
            <span>{part}</span>
            <span className="faint clip" title={state}>
              {state}
            </span>
          </li>
        ))}
        {failing.map((loop) => (
          <li key={loop.name}>
            <Status value="FAILED" />
            <span>loop {loop.name}</span>
            <span className="faint clip">{loop.error}</span>
          </li>
        ))}
      </ul>
      {loops.data && failing.length === 0 && <p className="faint">All {loops.data.loops.length} control loops are ok.</p>}
    </Panel>
  );
}
