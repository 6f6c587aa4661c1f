/** Requests to the API, with the token of this tab and the server's own words in errors. */

import * as session from "./session";

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

/** Requests that need no login. */
const PUBLIC = new Set(["/api/auth/login", "/api/auth/redeem"]);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
    this.name = "ApiError";
  }
}

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await send("GET", path, { query, signal })).json() as Promise<T>;
}

export async function call<T = void>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, options: Options = {}) {
  const answer = await send(method, path, options);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** Send a request and return its successful answer, the body unread; throw an ApiError otherwise. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const token = session.session()?.token;
  if (!token && !PUBLIC.has(path)) throw new ApiError(401, "not-authenticated", "Log in first.");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(url(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server does not answer; the console tries again by itself.");
  }
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  // A login that ended is asked for again, at the page that the user is on. Wrong passwords are no such thing.
  if (answer.status === 401 && token && session.session()?.token === token) session.end(false);
  throw problem;
}

export function url(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    if (Array.isArray(value)) for (const each of value) parameters.append(name, each);
    else parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

async function problemOf(answer: Response): Promise<ApiError> {
  try {
    const body = (await answer.json()) as { code?: string; message?: string; details?: Record<string, unknown> };
    return new ApiError(answer.status, body.code ?? "error", body.message ?? answer.statusText, body.details);
  } catch {
    return new ApiError(answer.status, "error", `The server answered with status ${answer.status}.`);
  }
}

/** Renew the token in the second half of its life, while the tab is looked at. */
export async function renewIfDue(): Promise<void> {
  const now = session.session();
  if (!now || now.renewAt > Date.now() || document.hidden) return;
  try {
    const token = await call<{ access_token: string; expires_in: number }>("POST", "/api/auth/renew");
    session.begin(token.access_token, token.expires_in);
  } catch {
    // The token is valid until it expires; then the page asks for a login.
  }
}
