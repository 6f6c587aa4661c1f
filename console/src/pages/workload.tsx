/** One workload: its status in a sentence, its tasks, why it is where it is, its history, output and a shell. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState } from "react";
import { ApiError, get } from "../api/client";
import type { WorkloadDetail } from "../api/types";
import { Ago, Bar, Field, Loading, Panel, Problem, Status } from "../components/basics";
import { Tabs } from "../components/tabs";
import { percent, readable } from "../lib/format";
import { sentence } from "../lib/sentence";
import { TABS, type Tab } from "../lib/tabs";
import { AccessTab } from "./access_tab";
import { ExplanationTab } from "./explanation";
import { HistoryTab } from "./history";
import { LogsTab } from "./logs";
import { Tasks } from "./tasks";
import { UsageTab } from "./usage_tab";
import { WorkloadActions } from "./workload_actions";

const ShellTab = lazy(() => import("./shell"));

export function WorkloadPage() {
  const { ref } = useParams({ from: "/app/workloads/$ref" });
  const { tab = "tasks" } = useSearch({ from: "/app/workloads/$ref" });
  const navigate = useNavigate({ from: "/workloads/$ref" });
  const client = useQueryClient();
  const { data, error, refetch } = useQuery({
    queryKey: ["workload", "detail", ref],
    queryFn: ({ signal }) => get<WorkloadDetail>(`/api/workloads/${encodeURIComponent(ref)}`, undefined, signal),
  });
  if (error && (!data || (error instanceof ApiError && error.status === 404))) {
    return (
      <div className="page">
        <Problem error={error} retry={() => void refetch()} />
        <p>
          <Link to="/workloads">All workloads</Link>
        </p>
      </div>
    );
  }
  if (!data) return <Loading />;
  const select = (next: Tab) => void navigate({ search: (before) => ({ ...before, tab: next === "tasks" ? undefined : next }), replace: true });
  return (
    <div className="page">
      <header className="title">
        <Link to="/workloads" className="crumb">
          Workloads
        </Link>
        <h1>{data.name}</h1>
        <Status value={data.status} />
        {data.simulated && <span className="tag">simulated</span>}
        <div className="spacer" />
        <WorkloadActions workload={data} onDone={() => void client.invalidateQueries({ queryKey: ["workload"] })} />
      </header>
      <Sentence workload={data} />
      <dl className="facts">
        <Field name="Kind">
          {data.kind}, {data.type}
        </Field>
        <Field name="Pool">{data.pool}</Field>
        <Field name="Owner">
          {data.user} in {data.project}
        </Field>
        <Field name="Requests per task">
          {Object.entries(data.resources)
            .map(([slot, amount]) => `${readable(amount)} ${slot}`)
            .join(", ") || "nothing"}
        </Field>
        <Field name="Priority">{data.priority}</Field>
        <Field name="Created">
          <Ago at={data.created_at} />
        </Field>
        {data.image && <Field name="Image">{data.image}</Field>}
        {data.command.length > 0 && (
          <Field name="Command">
            <code>{data.command.join(" ")}</code>
          </Field>
        )}
      </dl>
      <Tabs label="About this workload" panel="tab-panel" tabs={TABS} chosen={tab} onChoose={select} />
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} className="tab-panel">
        {tab === "tasks" && <Tasks workload={data} />}
        {tab === "explanation" && <ExplanationTab workload={data} />}
        {tab === "history" && <HistoryTab workload={data} />}
        {tab === "logs" && <LogsTab workload={data} />}
        {tab === "usage" && <UsageTab workload={data} />}
        {tab === "access" && <AccessTab workload={data} />}
        {tab === "shell" && (
          <Suspense fallback={<Loading />}>
            <ShellTab workload={data} />
          </Suspense>
        )}
      </div>
      {data.rollout && tab === "tasks" && <Rollout rollout={data.rollout} replicas={data.replicas} />}
    </div>
  );
}

/** Again every second, since it has distances from now. */
function Sentence({ workload }: { workload: WorkloadDetail }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return <p className="sentence">{sentence(workload, now)}</p>;
}

function Rollout({ rollout, replicas }: { rollout: NonNullable<WorkloadDetail["rollout"]>; replicas: number }) {
  return (
    <Panel title="Rollout" aside={<span className="tag">{rollout.phase}</span>}>
      <div className="meters">
        <div className="meter">
          <span className="pool">Updated</span>
          <span>
            {rollout.updated} of {replicas}
          </span>
          <Bar label="Updated" parts={[{ name: "updated", value: percent(rollout.updated, replicas), tone: "used" }]} />
          <span className="number">{percent(rollout.updated, replicas).toFixed(0)} %</span>
        </div>
      </div>
      <dl className="facts">
        <Field name="Revision">{rollout.revision}</Field>
        <Field name="Of older revisions">{rollout.outdated}</Field>
        <Field name="Surge">{rollout.surge}</Field>
        <Field name="Unavailable">{rollout.unavailable}</Field>
        {rollout.reason && <Field name="Reason">{rollout.reason}</Field>}
      </dl>
    </Panel>
  );
}
