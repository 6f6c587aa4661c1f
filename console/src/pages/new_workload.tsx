/** A new session, deployment or lab: one text, as a form or as YAML, with a dry run of it beside. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { call, get } from "../api/client";
import type { WorkloadDetail } from "../api/types";
import { Loading, Problem } from "../components/basics";
import { Tabs } from "../components/tabs";
import type { Schema } from "../lib/json_schema";
import { KINDS } from "../lib/kinds";
import { edited, isManifest, parse, submission, template } from "../lib/manifest";
import { manifestOf, NOT_COPIED } from "../lib/resubmit";
import { DryRun } from "./dry_run";
import { WorkloadForm } from "./workload_form";

const YamlEditor = lazy(() => import("../components/yaml_editor"));

export function NewWorkload() {
  const { kind = "session", from, view } = useSearch({ from: "/app/new" });
  const navigate = useNavigate({ from: "/new" });
  const [text, setText] = useState(() => template(kind));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const schema = useQuery({
    queryKey: ["manifest-schema"],
    queryFn: ({ signal }) => get<Schema>("/api/manifests/schema", undefined, signal),
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: false,
  });
  const original = useQuery({
    queryKey: ["workload", "detail", from],
    queryFn: ({ signal }) => get<WorkloadDetail>(`/api/workloads/${encodeURIComponent(from ?? "")}`, undefined, signal),
    enabled: from !== undefined,
  });
  const copied = original.data;
  // biome-ignore lint/correctness/useExhaustiveDependencies: once, however often the original changes afterwards.
  useEffect(() => {
    if (copied) setText(manifestOf(copied));
  }, [copied?.id]);

  const { value, problems } = useMemo(() => parse(text, schema.data), [text, schema.data]);
  const manifest = isManifest(value) && !problems.length ? value : null;
  const change = (next: string) => {
    setText(next);
    setError(null);
  };

  async function submit() {
    if (!manifest) return;
    setBusy(true);
    setError(null);
    try {
      const { path, body } = submission(manifest);
      const accepted = await call<{ id?: string; workload?: string }>("POST", path, { body });
      await navigate({ to: "/workloads/$ref", params: { ref: accepted.workload ?? accepted.id ?? String(manifest.name) }, search: {} });
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  }

  return (
    <div className="page">
      <header className="title">
        <h1>New workload</h1>
        <div className="chips" role="group" aria-label="Kind">
          {KINDS.map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={isManifest(value) ? value.kind === each : kind === each}
              onClick={() => {
                change(template(each));
                void navigate({ search: (before) => ({ ...before, kind: each, from: undefined }), replace: true });
              }}
            >
              {each}
            </button>
          ))}
        </div>
        <div className="spacer" />
        <button type="button" className="primary" disabled={!manifest || busy} onClick={() => void submit()}>
          {busy ? "Submitting…" : "Submit"}
        </button>
      </header>
      {error !== null && <Problem error={error} />}
      {original.error && <Problem error={original.error} />}
      {copied && (
        <p className="faint">
          A copy of {copied.name}. {NOT_COPIED}
        </p>
      )}
      <div className="compose">
        <section className="panel source">
          <Tabs
            label="Write as"
            panel="source"
            tabs={["form", "yaml"]}
            chosen={view ?? "form"}
            names={{ form: "Form", yaml: "YAML" }}
            onChoose={(next) => void navigate({ search: (before) => ({ ...before, view: next === "yaml" ? next : undefined }), replace: true })}
          />
          <div role="tabpanel" id="source" aria-labelledby={`tab-${view ?? "form"}`}>
            {view === "yaml" ? (
              <Suspense fallback={<Loading />}>
                <YamlEditor text={text} problems={problems} schema={schema.data} onChange={change} />
              </Suspense>
            ) : (
              <WorkloadForm value={value} schema={schema.data} onEdit={(path, next) => change(edited(text, path, next))} />
            )}
          </div>
          {problems.length > 0 && (
            <ul className="faults" role="status" aria-label="Problems">
              {problems.slice(0, 8).map((problem) => (
                <li key={`${problem.line} ${problem.message}`}>
                  <span className="faint">line {problem.line}</span> {problem.message}
                </li>
              ))}
            </ul>
          )}
        </section>
        <DryRun manifest={manifest} />
      </div>
      <p className="faint">
        The same from a terminal: save the YAML as <code>workload.yaml</code>, then run <code>mooring apply -f workload.yaml</code>.
      </p>
    </div>
  );
}
