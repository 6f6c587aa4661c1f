/** Log in by password, or by the one-time code of a link, which is in the part of the URL that no server sees. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { call } from "../api/client";
import * as session from "../api/session";
import type { Token } from "../api/types";
import { Problem } from "../components/basics";
import { safeNext } from "../lib/next";

export function Login() {
  const navigate = useNavigate();
  const { next } = useSearch({ from: "/login" });
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [other, setOther] = useState<Token | null>(null);
  const redeemed = useRef(false);

  async function begin(token: Token) {
    // Without what the user before has seen.
    session.end(false);
    session.begin(token.access_token, token.expires_in);
    await navigate({ href: safeNext(next), replace: true });
  }

  async function enter(work: () => Promise<Token>, byLink = false) {
    setBusy(true);
    setError(null);
    try {
      const present = byLink ? await session.restore() : null;
      const token = await work();
      // Whoever sent the link must not have the user work in another name unnoticed.
      if (present && session.userOf(present) !== session.userOf({ token: token.access_token })) setOther(token);
      else await begin(token);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: once per page, since a code works once.
  useEffect(() => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (redeemed.current) return;
    redeemed.current = true;
    if (code) {
      // Out of the address bar and the history before anything else.
      history.replaceState(history.state, "", location.pathname + location.search);
      void enter(() => call<Token>("POST", "/api/auth/redeem", { body: { code } }), true);
    } else if (session.session()) {
      void navigate({ href: safeNext(next), replace: true });
    }
  }, []);

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const values = new FormData(event.currentTarget);
    const body = { username: String(values.get("username")), password: String(values.get("password")) };
    void enter(() => call<Token>("POST", "/api/auth/login", { body }));
  }

  if (other) {
    return (
      <main className="login">
        <form>
          <h1>Mooring</h1>
          <p role="alert">You are logged in already, as another user than the one of this link.</p>
          <button type="button" className="primary" onClick={() => void navigate({ href: safeNext(next), replace: true })}>
            Stay logged in
          </button>
          <button type="button" onClick={() => void begin(other)}>
            Use the login of the link
          </button>
        </form>
      </main>
    );
  }
  return (
    <main className="login">
      <form onSubmit={submit}>
        <h1>Mooring</h1>
        {error !== null && <Problem error={error} />}
        <label>
          User
          <input name="username" autoComplete="username" required autoFocus />
        </label>
        <label>
          Password
          <input name="password" type="password" autoComplete="current-password" required />
        </label>
        <button type="submit" className="primary" disabled={busy}>
          {busy ? "Logging in…" : "Log in"}
        </button>
        <p className="faint">
          <code>mooring console</code> prints a link that logs you in here.
        </p>
      </form>
    </main>
  );
}
