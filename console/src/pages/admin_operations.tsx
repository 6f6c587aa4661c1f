/** Live events, the audit log of admin actions, servers and leadership. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { call, get } from "../api/client";
import type { ActionList, Event, Leader, LoopList, ServerList } from "../api/types";
import { Ago, Empty, Field, Loading, Panel, Problem, Status } from "../components/basics";
import { FormButton, Records } from "../components/form_dialog";
import { onEvents, recentEvents } from "../components/live";
import { useList } from "./admin_tenants";

export function EventsPart() {
  const [events, setEvents] = useState<Event[]>(recentEvents);
  const [search, setSearch] = useState("");
  useEffect(() => {
    const stop = onEvents(() => setEvents(recentEvents()));
    return () => void stop();
  }, []);
  const rows = events.filter((event) => `${event.noun} ${event.kind} ${event.id}`.toLowerCase().includes(search.toLowerCase())).toReversed();
  return (
    <Panel title="Live events" aside={<input type="search" aria-label="Search the events" placeholder="Search" value={search} onChange={(event) => setSearch(event.target.value)} />}>
      {rows.length === 0 ? (
        <Empty title="No event has arrived since this tab was opened. Submit something:" command="mooring run -- echo hello" />
      ) : (
        <Records
          label="Events"
          rows={rows.slice(0, 200)}
          id={(event) => event.cursor}
          columns={[
            { name: "When", cell: (event) => <Ago at={event.at} /> },
            { name: "About", cell: (event) => event.noun },
            { name: "Event", cell: (event) => event.kind },
            { name: "Id", cell: (event) => <code>{event.id}</code> },
          ]}
        />
      )}
    </Panel>
  );
}

export function AuditPart() {
  const { data, error } = useList<ActionList>("actions", "/api/actions", { limit: "200" });
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <Panel title="Audit log">
      {data.actions.length === 0 ? (
        <Empty title="No admin has changed anything yet." command="mooring actions" />
      ) : (
        <Records
          label="Audit log"
          rows={data.actions}
          id={(each) => String(each.id)}
          columns={[
            { name: "When", cell: (each) => <Ago at={each.at} /> },
            { name: "Who", cell: (each) => each.username },
            { name: "Action", cell: (each) => each.action },
            { name: "Of", cell: (each) => `${each.noun} ${each.object}` },
            { name: "Details", cell: (each) => <code className="details">{JSON.stringify(each.after ?? {})}</code> },
          ]}
        />
      )}
    </Panel>
  );
}

export function ServersPart() {
  const options = { refetchInterval: 10_000 };
  const servers = useQuery({ queryKey: ["servers"], queryFn: ({ signal }) => get<ServerList>("/api/servers", undefined, signal), ...options });
  const leader = useQuery({ queryKey: ["leader"], queryFn: ({ signal }) => get<Leader>("/api/leader", undefined, signal), ...options });
  const loops = useQuery({ queryKey: ["loops"], queryFn: ({ signal }) => get<LoopList>("/api/loops", undefined, signal), ...options });
  const error = servers.error ?? leader.error ?? loops.error;
  if (error) return <Problem error={error} />;
  if (!servers.data || !leader.data || !loops.data) return <Loading />;
  return (
    <>
      <Panel
        title="Leadership"
        aside={
          <FormButton label="Resign" title="Let another server lead?" confirm="Resign" danger fields={[]} onSubmit={() => call("POST", "/api/leader/resign")}>
            <p>The leader gives up its term. A standby takes over; a single server leads again itself.</p>
          </FormButton>
        }
      >
        <dl className="facts">
          <Field name="Leader">{leader.data.name ?? "none"}</Field>
          <Field name="Term">{leader.data.term}</Field>
          <Field name="Since">
            <Ago at={leader.data.since} />
          </Field>
          <Field name="Coordination">{leader.data.coordination ?? "–"}</Field>
          <Field name="Standbys">{leader.data.standbys.length}</Field>
        </dl>
      </Panel>
      <Panel title="Servers">
        <Records
          label="Servers"
          rows={servers.data.servers}
          id={(each) => each.name}
          columns={[
            { name: "Server", cell: (each) => each.name },
            { name: "Role", cell: (each) => each.role },
            { name: "Standing", cell: (each) => <Status value={each.standing === "silent" ? "LOST" : "READY"} /> },
            { name: "Version", cell: (each) => each.version },
            { name: "Started", cell: (each) => <Ago at={each.started_at} /> },
            { name: "Seen", cell: (each) => <Ago at={each.last_seen_at} /> },
          ]}
        />
      </Panel>
      <Panel title="Control loops">
        <Records
          label="Control loops"
          rows={loops.data.loops}
          id={(each) => each.name}
          columns={[
            { name: "Loop", cell: (each) => each.name },
            { name: "Outcome", cell: (each) => each.outcome ?? "–" },
            { name: "Last run", cell: (each) => <Ago at={each.last_run_at} /> },
            { name: "Duration", cell: (each) => (each.duration_seconds === null ? "–" : `${((each.duration_seconds ?? 0) * 1000).toFixed(0)} ms`), number: true },
            { name: "Runs", cell: (each) => each.runs.toLocaleString("en"), number: true },
            { name: "Failures", cell: (each) => each.failures, number: true },
            { name: "Error", cell: (each) => each.error ?? "" },
          ]}
        />
      </Panel>
    </>
  );
}
