/** Keypairs, secrets and volumes: what work and programs use. */

import { useState } from "react";
import type { Keypair, Secret, User, Volume } from "../api/types";
import { Ago, Empty, Loading, Panel, Problem } from "../components/basics";
import { FormButton, Records, ShownOnce } from "../components/form_dialog";
import { useChange, useList } from "./admin_tenants";

export function KeypairsPart({ me }: { me: User }) {
  const { data, error } = useList<Keypair[]>("keypairs", "/api/keypairs", me.role === "user" ? undefined : { everyone: "true" });
  const change = useChange();
  const [made, setMade] = useState<{ key: string; secret: string } | null>(null);
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <Panel
      title="Keypairs"
      aside={
        <FormButton
          label="New keypair"
          title="New keypair"
          confirm="Create it"
          primary
          fields={[
            { name: "name", label: "Name" },
            { name: "days", label: "Expires after days", kind: "number", hint: "Empty: it does not expire." },
          ]}
          onSubmit={async ({ name, days }) => {
            const created = await change<Keypair & { secret: string }>("POST", "/api/keypairs", { ...(name && { name }), ...(days && { expires_in_seconds: Number(days) * 86_400 }) });
            setMade({ key: created.access_key, secret: created.secret });
          }}
        />
      }
    >
      {data.length === 0 ? (
        <Empty title="There is no keypair. Programs log in with one:" command="mooring keypair create --name ci" />
      ) : (
        <Records
          label="Keypairs"
          rows={data}
          id={(each) => each.access_key}
          columns={[
            { name: "Access key", cell: (each) => <code>{each.access_key}</code> },
            { name: "Name", cell: (each) => each.name ?? "–" },
            { name: "User", cell: (each) => each.user },
            { name: "Scope", cell: (each) => each.scope },
            { name: "Active", cell: (each) => (each.active ? "yes" : "no") },
            { name: "Last used", cell: (each) => <Ago at={each.last_used_at} /> },
            { name: "Expires", cell: (each) => <Ago at={each.expires_at} /> },
            {
              name: "Actions",
              cell: (each) => (
                <FormButton label="Remove" title={`Remove ${each.access_key}?`} confirm="Remove it" danger fields={[]} onSubmit={() => change("DELETE", `/api/keypairs/${each.access_key}`)}>
                  <p>Programs that use it are refused from now on.</p>
                </FormButton>
              ),
            },
          ]}
        />
      )}
      {made && <ShownOnce title={`Secret key of ${made.key}`} text={made.secret} onClose={() => setMade(null)} />}
    </Panel>
  );
}

export function SecretsPart({ me }: { me: User }) {
  const path = `/api/projects/${me.project}/secrets`;
  const query = { domain: me.domain };
  const { data, error } = useList<Secret[]>("secrets", path, query);
  const change = useChange();
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <Panel
      title={`Secrets of ${me.project}`}
      aside={
        <FormButton
          label="Set a secret"
          title="Set a secret"
          confirm="Set it"
          primary
          fields={[
            { name: "name", label: "Name", required: true },
            { name: "value", label: "Value", kind: "password", required: true, hint: "No one can read it afterwards, except for the tasks that mount it." },
          ]}
          onSubmit={({ name = "", value }) => change("PUT", `${path}/${encodeURIComponent(name)}`, { value: base64(value ?? "") }, query)}
        />
      }
    >
      {data.length === 0 ? (
        <Empty title="This project has no secrets. Their values are written here and never shown:" command="mooring secret set NAME" />
      ) : (
        <Records
          label="Secrets"
          rows={data}
          id={(each) => each.name}
          columns={[
            { name: "Secret", cell: (each) => each.name },
            { name: "Bytes", cell: (each) => each.size, number: true },
            { name: "Changed", cell: (each) => <Ago at={each.updated_at} /> },
            {
              name: "Actions",
              cell: (each) => (
                <FormButton label="Remove" title={`Remove ${each.name}?`} confirm="Remove it" danger fields={[]} onSubmit={() => change("DELETE", `${path}/${each.name}`, undefined, query)}>
                  <p>Work that needs it can no longer start.</p>
                </FormButton>
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

export function VolumesPart() {
  const { data, error } = useList<Volume[]>("volumes", "/api/volumes");
  const change = useChange();
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <Panel
      title="Volumes"
      aside={
        <FormButton
          label="New volume"
          title="New volume"
          confirm="Create it"
          primary
          fields={[
            { name: "name", label: "Name", required: true },
            { name: "size", label: "Size", required: true, value: "1Gi" },
          ]}
          onSubmit={(values) => change("POST", "/api/volumes", values)}
        />
      }
    >
      {data.length === 0 ? (
        <Empty title="There is no volume. A volume outlives the tasks that mount it:" command="mooring volume create data --size 10Gi" />
      ) : (
        <Records
          label="Volumes"
          rows={data}
          id={(each) => each.id}
          columns={[
            { name: "Volume", cell: (each) => each.name },
            { name: "Project", cell: (each) => `${each.domain}/${each.project}` },
            { name: "Pool", cell: (each) => each.pool },
            { name: "Node", cell: (each) => (each.shared ? "shared" : (each.node ?? "–")) },
            { name: "Size", cell: (each) => each.size, number: true },
            { name: "Mounted by", cell: (each) => each.mounted_by, number: true },
            { name: "Status", cell: (each) => each.status.toLowerCase() },
            {
              name: "Actions",
              cell: (each) => (
                <FormButton label="Remove" title={`Remove ${each.name}?`} confirm="Remove it" danger fields={[]} onSubmit={() => change("DELETE", `/api/volumes/${each.name}`, undefined, { project: each.project, domain: each.domain })}>
                  <p>Its content is deleted.</p>
                </FormButton>
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function base64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}
