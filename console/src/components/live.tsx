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

/** Least milliseconds between two readings of the same kind, however many events come. */
const PACE: Record<string, number> = { workload: 500, node: 3000 };
/** After a reading, this many times as long passes before the next one: long ones are seldom. */
const REST = 10;

/** Return the milliseconds until the next reading of a kind, of which the last one took so many. */
export function pause(key: string, took: number): number {
  return Math.max(PACE[key] ?? 1000, took * REST);
}

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

/**
 * Read again; readings that are under way finish first, so that frequent events cannot starve slow ones. A tab that is
 * not looked at reads again when it is: the query client does so with all that is stale then.
 */
export async function refresh(client: QueryClient, key?: string): Promise<void> {
  const filters = key === undefined ? {} : { queryKey: [key] };
  if (document.hidden) {
    await client.invalidateQueries({ ...filters, refetchType: "none" });
    return;
  }
  const busy = new Set(client.getQueryCache().findAll({ ...filters, fetchStatus: "fetching" }));
  await client.invalidateQueries(filters, { cancelRefetch: false });
  if (busy.size) await client.invalidateQueries({ ...filters, predicate: (query) => busy.has(query) }, { cancelRefetch: false });
}

function paced(client: QueryClient): (keys: Iterable<string>) => void {
  const due = new Set<string>();
  const again = new Set<string>();
  const took = new Map<string, number>();

  async function run(key: string): Promise<void> {
    await new Promise((done) => setTimeout(done, pause(key, took.get(key) ?? 0)));
    again.delete(key);
    const began = performance.now();
    await refresh(client, key);
    took.set(key, performance.now() - began);
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

/** The pages wait this long for the stream, since all that they read before it begins has to be read again. */
const HEAD_START_MILLISECONDS = 300;
const Begun = createContext(false);

/** Whether the pages may begin to read. */
export function useBegun(): boolean {
  return useContext(Begun);
}

export function Live({ user, children }: { user: string | undefined; children: ReactNode }) {
  const client = useQueryClient();
  const [state, setState] = useState<StreamState>("off");
  const [begun, setBegun] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setBegun(true), HEAD_START_MILLISECONDS);
    return () => clearTimeout(timer);
  }, []);
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
      onGap: () => {
        void refresh(client);
        setBegun(true);
      },
      onState: setState,
    });
  }, [client, user]);
  return (
    <State.Provider value={state}>
      <Begun.Provider value={begun}>{children}</Begun.Provider>
    </State.Provider>
  );
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
