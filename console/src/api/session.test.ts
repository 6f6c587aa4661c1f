import { beforeEach, expect, it, vi } from "vitest";
import type { Session } from "./session";

function sessionOf(user: string, seconds: number): Session {
  const token = `head.${btoa(JSON.stringify({ sub: user })).replaceAll("=", "")}.${seconds}`;
  return { token, expiresAt: Date.now() + seconds * 1000, renewAt: Date.now() };
}

/** Open a tab, and return its sessions and another tab's messages to it. */
async function tab() {
  vi.resetModules();
  const session = await import("./session");
  const other = new BroadcastChannel("mooring.session");
  return {
    session,
    async told(message: { session: Session | null }) {
      other.postMessage(message);
      await new Promise((done) => setTimeout(done, 50));
    },
  };
}

beforeEach(() => vi.unstubAllGlobals());

it("a tab takes a newer login of its user from other tabs, and none of another user", async () => {
  const { session, told } = await tab();
  const ada = sessionOf("ada", 100);
  session.begin(ada.token, 100);
  await told({ session: sessionOf("eve", 3600) });
  expect(session.session()?.token).toBe(ada.token);
  const renewed = sessionOf("ada", 3600);
  await told({ session: renewed });
  expect(session.session()?.token).toBe(renewed.token);
  await told({ session: null });
  expect(session.session()).toBeNull();
  await told({ session: sessionOf("eve", 3600) });
  expect(session.userOf(session.session() as Session)).toBe("eve");
});
