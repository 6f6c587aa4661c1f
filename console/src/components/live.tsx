/** The events in this tab: they make stale what they are about. The top bar says whether they arrive. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { follow, type StreamState } from "../api/events";
import type { Event } from "../api/types";

const State = createContext<StreamState>("off");

const KEPT_EVENTS = 500;
let recent: Event[] = [];
const watchers = new Set<() => void>();

/** The last events of this tab, oldest first. */
export function recentEvents(): Event[] {
  return recent;
}

/** Call the listener after new events, until the returned function is called. */
export function onEvents(listener: () => void): () => void {
  watchers.add(listener);
  return () => watchers.delete(listener);
}

function keep(events: Event[]): void {
  recent = [...recent, ...events].slice(-KEPT_EVENTS);
  for (const watcher of watchers) watcher();
}

/** Milliseconds between two readings of the same kind, however many events come. */
const PACE: Record<string, number> = { workload: 500, node: 3000 };

export function staleKeys(events: Event[]): Set<string> {
  const keys = new Set<string>();
  for (const { noun } of events) {
    if (noun === "workload" || noun === "task") keys.add("workload");
    if (noun === "node" || noun === "task" || noun === "pool") keys.add("node");
    if (noun === "timeslot" || noun === "pool") keys.add("timeslot");
    if (noun === "pool" || noun === "tenant") keys.add(noun);
  }
  return keys;
}

/** Read again; readings that are under way finish first, so that frequent events cannot starve slow ones. */
async function refresh(client: QueryClient, key?: string): Promise<void> {
  const filters = key === undefined ? {} : { queryKey: [key] };
  const busy = client.isFetching(filters) > 0;
  await client.invalidateQueries(filters, { cancelRefetch: false });
  if (busy) await client.invalidateQueries(filters, { cancelRefetch: false });
}

function paced(client: QueryClient): (keys: Iterable<string>) => void {
  const due = new Set<string>();
  const again = new Set<string>();

  async function run(key: string): Promise<void> {
    await new Promise((done) => setTimeout(done, PACE[key] ?? 1000));
    again.delete(key);
    await refresh(client, key);
    if (again.has(key)) void run(key);
    else due.delete(key);
  }

  return (keys) => {
    for (const key of keys) {
      again.add(key);
      if (due.has(key)) continue;
      due.add(key);
      void run(key);
    }
  };
}

export function Live({ user, children }: { user: string | undefined; children: ReactNode }) {
  const client = useQueryClient();
  const [state, setState] = useState<StreamState>("off");
  useEffect(() => {
    if (user === undefined) return;
    const invalidate = paced(client);
    // Another user may have logged in.
    recent = [];
    return follow(user, {
      onEvents: (events) => {
        keep(events);
        invalidate(staleKeys(events));
      },
      onGap: () => void refresh(client),
      onState: setState,
    });
  }, [client, user]);
  return <State.Provider value={state}>{children}</State.Provider>;
}

export function LiveState() {
  const state = useContext(State);
  const text = { live: "live", reconnecting: "reconnecting…", off: "offline" }[state];
  return (
    <span className={`live ${state}`} role="status" title="The stream of events that keeps this page current">
      <span className="dot" aria-hidden="true" />
      {text}
    </span>
  );
}
