import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, expect, test, vi } from "vitest";
import { pause, refresh, staleKeys } from "./live";
import type { Event } from "../api/types";

afterEach(() => vi.unstubAllGlobals());

async function readings(hidden: boolean): Promise<[number, boolean]> {
  vi.stubGlobal("document", { hidden });
  const client = new QueryClient();
  let count = 0;
  const observer = new QueryObserver(client, { queryKey: ["node", "list"], queryFn: () => ++count, staleTime: 60_000 });
  const stop = observer.subscribe(() => {});
  await observer.refetch();
  const before = count;
  await refresh(client, "node");
  const stale = client.getQueryState(["node", "list"])?.isInvalidated === true;
  stop();
  client.clear();
  return [count - before, stale];
}

test("a tab that is looked at reads again, a hidden one only notes that it has to", async () => {
  expect(await readings(false)).toEqual([1, false]);
  expect(await readings(true)).toEqual([0, true]);
});

test("the longer a reading takes, the longer is the pause after it", () => {
  expect(pause("workload", 0)).toBe(500);
  expect(pause("node", 100)).toBe(3000);
  expect(pause("node", 900)).toBe(9000);
});

test("an event makes stale what it is about", () => {
  expect([...staleKeys([{ noun: "task" } as Event])]).toEqual(["workload", "node"]);
  expect([...staleKeys([{ noun: "timeslot" } as Event])]).toEqual(["timeslot"]);
});
