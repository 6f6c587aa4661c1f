/** Names for the schemas of the API's description, from which `schema.d.ts` is generated. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type ActionList = Schemas["ActionList"];
export type CapacityList = Schemas["CapacityList"];
export type Domain = Schemas["DomainView"];
export type DrainPreview = Schemas["DrainPreview"];
export type Explanation = Schemas["Explanation"];
export type Event = Schemas["EventView"];
export type FreeCapacity = Schemas["FreeCapacity"];
export type HistoryList = Schemas["HistoryList"];
export type JoinToken = Schemas["JoinToken"];
export type Keypair = Schemas["KeypairView"];
export type Leader = Schemas["LeaderView"];
export type LoopList = Schemas["LoopList"];
export type Member = Schemas["MemberView"];
export type Node = Schemas["NodeView"];
export type NodeList = Schemas["NodeList"];
export type Policy = Schemas["PolicyView"];
export type PoolList = Schemas["PoolList"];
export type Project = Schemas["ProjectView"];
export type QuotaView = Schemas["QuotaView"];
export type QuotaLine = Schemas["QuotaLine"];
export type Ready = Schemas["Ready"];
export type Removed = Schemas["Removed"];
export type RevisionList = Schemas["RevisionList"];
export type ScoredNode = Schemas["ScoredNode"];
export type Secret = Schemas["SecretView"];
export type ServerList = Schemas["ServerList"];
export type ShareList = Schemas["ShareList"];
export type Task = Schemas["TaskView"];
export type TaskUse = Schemas["TaskUse"];
export type TaskUseList = Schemas["TaskUseList"];
export type Timeline = Schemas["TimelineView"];
export type Timeslot = Schemas["TimeslotView"];
export type TimeslotList = Schemas["TimeslotList"];
export type Token = Schemas["Token"];
export type UsageReport = Schemas["UsageReport"];
export type User = Schemas["UserView"];
export type Volume = Schemas["VolumeView"];
export type Workload = Schemas["WorkloadView"];
export type WorkloadDetail = Schemas["WorkloadDetail"];
export type WorkloadList = Schemas["WorkloadList"];
export type WorkloadUsage = Schemas["WorkloadUsage"];
export type WorkloadStatus = Schemas["WorkloadStatus"];
