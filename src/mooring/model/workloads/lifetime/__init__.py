"""Rules for workloads after submission: attempts and retries, rollouts, health, idleness, lab phases and run times."""
