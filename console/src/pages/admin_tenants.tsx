/** Users, projects with their members, and domains. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../api/client";
import type { Domain, Member, Policy, Project, User } from "../api/types";
import { Ago, Loading, Panel, Problem, Status } from "../components/basics";
import { FormButton, Records, ShownOnce } from "../components/form_dialog";

const ROLES = ["user", "domain-admin", "admin"] as const;

export function useList<T>(key: string, path: string, query?: Record<string, string>, enabled = true) {
  return useQuery({ queryKey: ["tenant", key, path, query], queryFn: ({ signal }) => get<T>(path, query, signal), enabled });
}

/** Send a change, then read the lists again. */
export function useChange() {
  const client = useQueryClient();
  return async <T,>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body?: unknown, query?: Record<string, string>) => {
    const answer = await call<T>(method, path, { body, query });
    await client.invalidateQueries({ queryKey: ["tenant"] });
    return answer;
  };
}

export function TenantsPart({ admin }: { admin: boolean }) {
  return (
    <>
      <Users admin={admin} />
      <Projects admin={admin} />
      {admin && <Domains />}
    </>
  );
}

const NO_POLICY = "(none)";

interface CarrierProps {
  carrier: string;
  policy: string | null | undefined;
  path: string;
  query?: Record<string, string>;
}

/** The policy of a tenant, which admins change. */
function CarriedPolicy({ carrier, policy, path, query }: CarrierProps) {
  const { data } = useList<Policy[]>("policies", "/api/policies");
  const change = useChange();
  return (
    <span className="carried">
      {policy ?? "–"}
      {data && data.length > 0 && (
        <FormButton
          label="Change"
          name={`Change the policy of ${carrier}`}
          title={`Policy of ${carrier}`}
          confirm="Set it"
          fields={[{ name: "policy", label: "Policy", options: [NO_POLICY, ...data.map((each) => each.name)], value: policy ?? NO_POLICY }]}
          onSubmit={({ policy: chosen }) => change("PATCH", path, { policy: chosen === NO_POLICY ? "" : chosen }, query)}
        />
      )}
    </span>
  );
}

function Users({ admin }: { admin: boolean }) {
  const { data, error } = useList<User[]>("users", "/api/users");
  const change = useChange();
  const [password, setPassword] = useState<{ name: string; text: string } | null>(null);
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <Panel
      title="Users"
      aside={
        <FormButton
          label="New user"
          title="New user"
          confirm="Create it"
          primary
          fields={[
            { name: "username", label: "Name", required: true },
            { name: "password", label: "Password", kind: "password", hint: "Empty: one is generated and shown once." },
            { name: "project", label: "Project", hint: "Empty: the default project." },
            { name: "role", label: "Role", options: ROLES },
          ]}
          onSubmit={async ({ username = "", password, project, role }) => {
            const made = await change<{ password?: string | null }>("POST", "/api/users", { username, role, ...(password && { password }), ...(project && { project }) });
            if (made.password) setPassword({ name: username, text: made.password });
          }}
        />
      }
    >
      <Records
        label="Users"
        rows={data}
        id={(user) => user.id}
        columns={[
          { name: "User", cell: (user) => user.username },
          { name: "Role", cell: (user) => user.role },
          { name: "Project", cell: (user) => `${user.domain}/${user.project}` },
          { name: "Policy", cell: (user) => (admin ? <CarriedPolicy carrier={user.username} policy={user.policy} path={`/api/users/${user.username}`} /> : (user.policy ?? "–")) },
          { name: "Active", cell: (user) => (user.active ? "yes" : "no") },
          { name: "Created", cell: (user) => <Ago at={user.created_at} /> },
          {
            name: "Actions",
            cell: (user) => (
              <FormButton
                label={user.active ? "Deactivate" : "Activate"}
                title={`${user.active ? "Deactivate" : "Activate"} ${user.username}?`}
                confirm={user.active ? "Deactivate it" : "Activate it"}
                danger={user.active}
                fields={[]}
                onSubmit={() => change("PATCH", `/api/users/${user.username}`, { active: !user.active })}
              >
                <p>{user.active ? "The user can no longer log in; running work continues." : "The user can log in again."}</p>
              </FormButton>
            ),
          },
        ]}
      />
      {password && <ShownOnce title={`Password of ${password.name}`} text={password.text} onClose={() => setPassword(null)} />}
    </Panel>
  );
}

function Projects({ admin }: { admin: boolean }) {
  const { data, error } = useList<Project[]>("projects", "/api/projects");
  const change = useChange();
  const [chosen, setChosen] = useState<string | null>(null);
  if (error) return <Problem error={error} />;
  if (!data) return null;
  const project = data.find((each) => `${each.domain}/${each.name}` === chosen);
  return (
    <>
      <Panel
        title="Projects"
        aside={
          <FormButton label="New project" title="New project" confirm="Create it" fields={[{ name: "name", label: "Name", required: true }]} onSubmit={({ name }) => change("POST", "/api/projects", { name })} />
        }
      >
        <Records
          label="Projects"
          rows={data}
          id={(each) => `${each.domain}/${each.name}`}
          columns={[
            {
              name: "Project",
              cell: (each) => (
                <button type="button" className="link" onClick={() => setChosen(`${each.domain}/${each.name}`)}>
                  {each.domain}/{each.name}
                </button>
              ),
            },
            { name: "Members", cell: (each) => each.members, number: true },
            {
              name: "Policy",
              cell: (each) =>
                admin ? (
                  <CarriedPolicy carrier={`${each.domain}/${each.name}`} policy={each.policy} path={`/api/projects/${each.name}`} query={{ domain: each.domain }} />
                ) : (
                  (each.policy ?? "–")
                ),
            },
            { name: "Active", cell: (each) => (each.active ? "yes" : "no") },
            { name: "Created", cell: (each) => <Ago at={each.created_at} /> },
          ]}
        />
      </Panel>
      {project && <Members project={project} />}
    </>
  );
}

function Members({ project }: { project: Project }) {
  const path = `/api/projects/${project.name}/members`;
  const query = { domain: project.domain };
  const { data, error } = useList<Member[]>("members", path, query);
  const change = useChange();
  if (error) return <Problem error={error} />;
  return (
    <Panel
      title={`Members of ${project.domain}/${project.name}`}
      aside={
        <FormButton
          label="Add a member"
          title={`Add a member to ${project.name}`}
          confirm="Add it"
          fields={[
            { name: "username", label: "User", required: true },
            { name: "role", label: "Role", options: ["user", "project-admin"] },
          ]}
          onSubmit={(values) => change("POST", path, values, query)}
        />
      }
    >
      <Records
        label="Members"
        rows={data ?? []}
        id={(member) => member.username}
        columns={[
          { name: "User", cell: (member) => member.username },
          { name: "Role", cell: (member) => member.role },
          {
            name: "Actions",
            cell: (member) => (
              <FormButton
                label="Remove"
                title={`Remove ${member.username} from ${project.name}?`}
                confirm="Remove it"
                danger
                fields={[]}
                onSubmit={() => change("DELETE", `${path}/${member.username}`, undefined, query)}
              />
            ),
          },
        ]}
      />
    </Panel>
  );
}

function Domains() {
  const { data } = useList<Domain[]>("domains", "/api/domains");
  const change = useChange();
  return (
    <Panel
      title="Domains"
      aside={<FormButton label="New domain" title="New domain" confirm="Create it" fields={[{ name: "name", label: "Name", required: true }]} onSubmit={({ name }) => change("POST", "/api/domains", { name })} />}
    >
      <Records
        label="Domains"
        rows={data ?? []}
        id={(each) => each.name}
        columns={[
          { name: "Domain", cell: (each) => each.name },
          { name: "Policy", cell: (each) => <CarriedPolicy carrier={each.name} policy={each.policy} path={`/api/domains/${each.name}`} /> },
          { name: "Active", cell: (each) => <Status value={each.active ? "READY" : "DOWN"} /> },
        ]}
      />
    </Panel>
  );
}
