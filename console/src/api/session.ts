/**
 * The login of this tab. The token is in the tab's memory and its session storage, which belong to one origin: scheme,
 * host and port. A new tab asks the other tabs of the origin for theirs.
 */

export interface Session {
  token: string;
  /** Milliseconds since the epoch. */
  expiresAt: number;
  renewAt: number;
}

type Message = { ask: true } | { session: Session | null };

const KEY = "mooring.session";
const ASK_MILLISECONDS = 150;

let current: Session | null = read();
const listeners = new Set<() => void>();
const tabs = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("mooring.session");

if (tabs) {
  tabs.onmessage = ({ data }: MessageEvent<Message>) => {
    if ("ask" in data) {
      if (current) tabs.postMessage({ session: current } satisfies Message);
    } else if (data.session === null) {
      store(null);
    } else if (!current || (data.session.expiresAt > current.expiresAt && userOf(data.session) === userOf(current))) {
      // Never the login of another user: the page would go on with the work of this one in the name of that one.
      store(data.session);
    }
  };
}

export function session(): Session | null {
  return current && current.expiresAt > Date.now() ? current : null;
}

export function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return the id of a session's user. */
export function userOf({ token }: { token: string }): string {
  const claims = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
  return (JSON.parse(atob(claims)) as { sub: string }).sub;
}

export function begin(token: string, expiresInSeconds: number): void {
  const now = Date.now();
  store({ token, expiresAt: now + expiresInSeconds * 1000, renewAt: now + expiresInSeconds * 500 });
  tabs?.postMessage({ session: current } satisfies Message);
}

/** Forget the login in this tab, for `everywhere` in all tabs. */
export function end(everywhere: boolean): void {
  store(null);
  if (everywhere) tabs?.postMessage({ session: null } satisfies Message);
}

/** Return the login of this tab, or that of another tab of the same origin. */
export async function restore(): Promise<Session | null> {
  if (session() || !tabs) return session();
  tabs.postMessage({ ask: true } satisfies Message);
  const until = Date.now() + ASK_MILLISECONDS;
  while (!session() && Date.now() < until) await new Promise((done) => setTimeout(done, 10));
  return session();
}

function store(value: Session | null): void {
  current = value;
  try {
    if (value) sessionStorage.setItem(KEY, JSON.stringify(value));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage can be forbidden; then a reload asks for the password.
  }
  for (const listener of listeners) listener();
}

function read(): Session | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null;
    return stored && typeof stored.token === "string" && stored.expiresAt > Date.now() ? stored : null;
  } catch {
    return null;
  }
}
