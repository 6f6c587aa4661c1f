/** Administration: the parts that the viewer's role allows. The API refuses the others, whoever asks. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { Loading } from "../components/basics";
import { useMe } from "../components/layout";
import { Tabs } from "../components/tabs";
import { PARTS, type Part } from "../lib/parts";
import { KeypairsPart, SecretsPart, VolumesPart } from "./admin_access";
import { AuditPart, EventsPart, ServersPart } from "./admin_operations";
import { PoliciesPart } from "./admin_policies";
import { PoolsPart } from "./admin_pools";
import { TenantsPart } from "./admin_tenants";

const FOR_USERS: readonly Part[] = ["keypairs", "secrets", "volumes", "events"];
const FOR_TENANT_ADMINS: readonly Part[] = ["tenants", ...FOR_USERS];

export function Admin() {
  const { part, name } = useSearch({ from: "/app/admin" });
  const navigate = useNavigate({ from: "/admin" });
  const { data: me } = useMe();
  if (!me) return <Loading />;
  const allowed = me.role === "admin" ? PARTS : me.role === "user" ? FOR_USERS : FOR_TENANT_ADMINS;
  const shown = part && allowed.includes(part) ? part : (allowed[0] as Part);
  return (
    <div className="page">
      <header className="title">
        <h1>Administration</h1>
        <span className="faint">
          as {me.role} of {me.domain}/{me.project}
        </span>
      </header>
      <Tabs label="Parts" panel="part" tabs={allowed} chosen={shown} onChoose={(next) => void navigate({ search: { part: next } })} />
      <div role="tabpanel" id="part" aria-labelledby={`tab-${shown}`} className="tab-panel">
        {shown === "tenants" && <TenantsPart admin={me.role === "admin"} />}
        {shown === "policies" && <PoliciesPart />}
        {shown === "pools" && <PoolsPart name={name} onName={(next) => void navigate({ search: { part: "pools", name: next } })} />}
        {shown === "keypairs" && <KeypairsPart me={me} />}
        {shown === "secrets" && <SecretsPart me={me} />}
        {shown === "volumes" && <VolumesPart />}
        {shown === "events" && <EventsPart />}
        {shown === "audit" && <AuditPart />}
        {shown === "servers" && <ServersPart />}
      </div>
    </div>
  );
}
