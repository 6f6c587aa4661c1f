/** Small parts that all pages use. */

import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { absolute, fromNow } from "../lib/format";
import { NEXT_STEPS } from "../lib/problems";

const TONES: Record<string, string> = {
  RUNNING: "good",
  READY: "good",
  healthy: "good",
  ok: "good",
  SUCCEEDED: "done",
  PENDING: "wait",
  RESERVED: "wait",
  SCHEDULED: "busy",
  PREPARING: "busy",
  TERMINATING: "busy",
  DRAINING: "busy",
  FAILED: "bad",
  LOST: "bad",
  DOWN: "bad",
  EXPIRED: "bad",
};

export function Status({ value }: { value: string }) {
  return (
    <span className={`status ${TONES[value] ?? "quiet"}`}>
      <span className="dot" aria-hidden="true" />
      {value.toLowerCase().replaceAll("_", " ")}
    </span>
  );
}

let ticking: Set<() => void> | null = null;

/** Render again every second, all users of one timer at once. */
function useTick(): void {
  const [, set] = useState(0);
  useEffect(() => {
    const listener = () => set((count) => count + 1);
    if (!ticking) {
      ticking = new Set();
      const all = ticking;
      setInterval(() => {
        if (!document.hidden) for (const each of all) each();
      }, 1000);
    }
    const all = ticking;
    all.add(listener);
    return () => {
      all.delete(listener);
    };
  }, []);
}

/** An instant as its distance from now; the absolute time is its title. */
export function Ago({ at }: { at: string | null | undefined }) {
  useTick();
  if (!at) return <span className="faint">–</span>;
  return (
    <time dateTime={at} title={absolute(at)}>
      {fromNow(at)}
    </time>
  );
}

/** The server's words, and a step that follows from the code. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const known = error instanceof ApiError ? error : new ApiError(0, "error", String(error));
  const step = NEXT_STEPS[known.code];
  return (
    <div className="problem" role="alert">
      <div>
        <strong>{known.message}</strong>
        {step && <p>{step}</p>}
        <p className="faint">
          {known.code}
          {known.status > 0 && ` · ${known.status}`}
        </p>
      </div>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ title, command, children }: { title: string; command?: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p>{title}</p>
      {children}
      {command && (
        <pre>
          <code>{command}</code>
        </pre>
      )}
    </div>
  );
}

export function Panel({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel">
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Bar({ parts, label }: { parts: { value: number; tone: string; name: string }[]; label: string }) {
  const text = parts.map((part) => `${part.name} ${part.value.toFixed(0)} %`).join(", ");
  return (
    <span className="bar" role="img" aria-label={`${label}: ${text}`} title={text}>
      {parts.map((part) => (
        <span key={part.name} className={`fill ${part.tone}`} style={{ width: `${part.value}%` }} />
      ))}
    </span>
  );
}

/** An entry of a legend: the look of a class, and its name. */
export function Key({ of, as = of }: { of: string; as?: string }) {
  return (
    <span>
      <i className={of} /> {as}
    </span>
  );
}

export function Field({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="field">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Loading() {
  return (
    <div className="loading" aria-busy="true">
      <span className="skeleton" />
      <span className="skeleton" />
      <span className="skeleton" />
    </div>
  );
}
