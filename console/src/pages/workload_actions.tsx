/** Actions on one workload: cancel, scale, and the rollouts of deployments. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { call, get } from "../api/client";
import type { RevisionList, WorkloadDetail } from "../api/types";
import { Ago } from "../components/basics";
import { Dialog } from "../components/dialog";
import { FormButton } from "../components/form_dialog";
import { ENDED } from "../lib/statuses";
import { commandLine, words } from "../lib/words";

type Question = "cancel" | "scale" | "undo";

export function WorkloadActions({ workload, onDone }: { workload: WorkloadDetail; onDone: () => void }) {
  const [question, setQuestion] = useState<Question | null>(null);
  const again = (
    <Link className="button" to="/new" search={{ from: workload.id }}>
      Resubmit
    </Link>
  );
  if (ENDED.has(workload.status) || workload.stopping) return again;
  const deployment = workload.kind === "deployment";
  const paused = workload.rollout?.phase === "paused";
  const rollout = `/api/deployments/${workload.id}`;
  const done = async (work: Promise<unknown>) => {
    await work;
    onDone();
  };
  const close = () => setQuestion(null);
  return (
    <>
      {again}
      {deployment && (
        <>
          <button type="button" onClick={() => setQuestion("scale")}>
            Scale
          </button>
          <Update workload={workload} path={rollout} onDone={done} />
          <PauseButton paused={paused} path={rollout} onDone={onDone} />
          <button type="button" onClick={() => setQuestion("undo")}>
            Undo
          </button>
        </>
      )}
      <button type="button" className="danger" onClick={() => setQuestion("cancel")}>
        {deployment ? "Stop" : "Cancel"}
      </button>
      {question === "cancel" && (
        <Dialog
          title={`${deployment ? "Stop" : "Cancel"} ${workload.name}?`}
          confirm={deployment ? "Stop it" : "Cancel it"}
          danger
          onConfirm={() => done(call("DELETE", `/api/workloads/${workload.id}`, { query: { keep: true } }))}
          onClose={close}
        >
          <p>Its tasks are stopped. It stays on the list.</p>
        </Dialog>
      )}
      {question === "scale" && <Scale workload={workload} onClose={close} onDone={done} />}
      {question === "undo" && <Undo workload={workload} path={rollout} onClose={close} onDone={done} />}
    </>
  );
}

function PauseButton({ paused, path, onDone }: { paused: boolean; path: string; onDone: () => void }) {
  const [asking, setAsking] = useState(false);
  const [word, action] = paused ? ["Resume", "resume"] : ["Pause", "pause"];
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        {word}
      </button>
      {asking && (
        <Dialog
          title={`${word} the rollout?`}
          confirm={`${word} it`}
          onConfirm={async () => {
            await call("POST", `${path}/${action}`);
            onDone();
          }}
          onClose={() => setAsking(false)}
        >
          <p>{paused ? "The rollout goes on to the newest revision." : "Replicas of the older revision stay until it is resumed."}</p>
        </Dialog>
      )}
    </>
  );
}

interface Asked {
  workload: WorkloadDetail;
  onClose: () => void;
  onDone: (work: Promise<unknown>) => Promise<void>;
}

function Scale({ workload, onClose, onDone }: Asked) {
  const [replicas, setReplicas] = useState(workload.replicas);
  return (
    <Dialog
      title={`Scale ${workload.name}`}
      confirm="Scale"
      onConfirm={() => onDone(call("POST", `/api/workloads/${workload.id}/scale`, { body: { replicas } }))}
      onClose={onClose}
    >
      <label>
        Replicas
        <input type="number" min={0} value={replicas} onChange={(event) => setReplicas(event.target.valueAsNumber || 0)} />
      </label>
    </Dialog>
  );
}

/** Another image or command of the first container, or other resources: its tasks are replaced step by step. */
function Update({ workload, path, onDone }: { workload: WorkloadDetail; path: string; onDone: Asked["onDone"] }) {
  const first = workload.containers?.find((each) => each.role === "main");
  const before = { image: first?.image ?? "", command: commandLine(first?.command ?? []) };
  return (
    <FormButton
      label="Update"
      title={`Update ${workload.name}`}
      confirm="Update it"
      fields={[
        { name: "image", label: "Image", value: before.image },
        { name: "command", label: "Command", value: before.command },
        ...Object.entries(workload.resources).map(([slot, value]) => ({ name: slot, label: slot, value })),
        { name: "cause", label: "Cause", hint: "Shown at the revision." },
      ]}
      onSubmit={({ image, command, cause, ...slots }) => {
        const resources = Object.fromEntries(Object.entries(slots).filter(([slot, value]) => value && value !== workload.resources[slot]));
        const body = {
          ...(image && image !== before.image && { image }),
          ...(command !== before.command && { command: words(command ?? "") }),
          ...(Object.keys(resources).length && { resources }),
          ...(cause && { cause }),
        };
        return onDone(call("POST", `${path}/update`, { body }));
      }}
    />
  );
}

function Undo({ workload, path, onClose, onDone }: Asked & { path: string }) {
  const { data } = useQuery({
    queryKey: ["workload", "revisions", workload.id],
    queryFn: ({ signal }) => get<RevisionList>(`${path}/revisions`, undefined, signal),
  });
  const others = data?.revisions.filter((each) => !each.present) ?? [];
  const [revision, setRevision] = useState<number | null>(null);
  return (
    <Dialog
      title={`Return ${workload.name} to an earlier revision`}
      confirm="Return"
      onConfirm={() => onDone(call("POST", `${path}/rollback`, { body: revision === null ? {} : { revision } }))}
      onClose={onClose}
    >
      <label>
        Revision
        <select value={revision ?? ""} onChange={(event) => setRevision(event.target.value ? Number(event.target.value) : null)}>
          <option value="">The one before</option>
          {others.map((each) => (
            <option key={each.number} value={each.number}>
              {each.number}: {each.cause || each.images.join(", ")}
            </option>
          ))}
        </select>
      </label>
      {data && others.length === 0 && <p>There is no earlier revision.</p>}
      {others[0] && (
        <p className="faint">
          The newest of them is from <Ago at={others[0].created_at} />.
        </p>
      )}
    </Dialog>
  );
}
